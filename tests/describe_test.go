package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/ops/generate"
	"talos-proxmox/stacks/ops/importcmd"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/rehearsal"
)

// odd is an unusual cluster: numbers and names with holes, VMIDs that do not follow, a disk more, and
// machine configuration that no key stands for.
const odd = `config:
  talos-proxmox:proxmox:
    endpoint: https://pve.lan:8006
    tokenId: pulumi@pve!talos
    hosts: [{ name: pve1 }, { name: pve2 }]
  talos-proxmox:cluster:
    name: odd
    versions: { talos: v1.12.4, kubernetes: v1.34.2 }
    patches:
      - "machine: { sysctls: { vm.max_map_count: '262144' } }"
  talos-proxmox:image:
    source: iso
    iso: { volume: local:iso/talos-1.12.4.iso }
  talos-proxmox:network: { cidr: 10.44.0.0/24 }
  talos-proxmox:pools:
    masters: { role: controlplane, names: "cp{nn}", count: 1, vmids: 410, addresses: 10.44.0.30 }
    work:
      role: worker
      vmids: 701,705,703
      addresses: 10.44.0.41-43
      nodes:
        "1": { memoryMiB: 2048, extraDisks: [{ sizeGiB: 12 }], patches: ["machine: { registries: { config: { registry.lan: { auth: { username: robot, password: PassWord0123456789 } } } } }"] }
        "3": { host: pve2, mac: "BC:24:11:00:00:07", labels: { tier: db }, patches: ["machine: { kernel: { modules: [{ name: br_netfilter }] } }"] }
`

// TestDescribe loses state and stack file of a cluster, one of whose nodes was changed by hand. What stands
// tells a stack file, with which it is taken over: no machine changes, and of the nodes that one alone, in what cannot
// be described and the table names. Then the preview is empty.
func TestDescribe(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, odd))
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))

	deployed, before := r.Lab.World().Snapshot(), configurations(t, r, outputs)
	byHand(t, r, outputs, "odd-work-3", func(c *v1alpha1.Config) {
		c.MachineConfig.MachineSysctls["vm.swappiness"] = "1"
		c.MachineConfig.MachineKubelet.KubeletNodeIP.KubeletNodeIPValidSubnets[0] = "10.0.0.0/8"
	})

	talosconfig := filepath.Join(t.TempDir(), "talosconfig")
	require.NoError(t, os.WriteFile(talosconfig, []byte(outputs["talosconfig"].Value.(string)), 0o600))

	cli(t, r, "stack", "rm", "--force", "--yes")

	credentials := r.Lab.Credentials()
	result, err := generate.Stack(t.Context(), generate.Options{
		Access: proxmoxapi.Access{
			Endpoint: r.Lab.Endpoint(), Insecure: true, TokenID: credentials.TokenID,
			TokenSecret: credentials.TokenSecret,
		},
		Tag: "odd", Talosconfig: talosconfig,
	})
	require.NoError(t, err)
	assert.NotContains(t, string(result.File)+strings.Join(result.Notes, "\n"), "PassWord")
	assert.Equal(t, []string{
		"no VM records which image it booted first: the file names local:iso/talos-1.12.4.iso, which must exist " +
			"before a new node is created",
		"machine.registries.config.registry.lan.auth.password of odd-work-1 may be a secret: the patches of the node are not " +
			"in the file",
		"machine.registries.config.registry.lan.auth.username of odd-work-1 may be a secret: the patches of the node are not " +
			"in the file",
		"odd-work-3 cannot be described: the first update would change machine.kubelet.nodeIP.validSubnets[0]: 10.0.0.0/8 " +
			"becomes " + r.Plan.Network.String(),
		"odd-work-3 cannot be described: the first update would change machine.kubelet.nodeIP.validSubnets[1]: 10.0.0.0/8 (new)",
		"could not determine how nodes get their addresses: the file has reserved, which expects them from DHCP or " +
			"from the image; new nodes need that too",
		"the credentials of Proxmox VE are not in the file: pulumi config set --secret proxmoxTokenSecret",
	}, result.Notes)

	file := filepath.Join(r.Stack.Workspace().WorkDir(), "Pulumi."+r.Stack.Name()+".yaml")
	require.NoFileExists(t, file)
	require.NoError(t, os.WriteFile(file, result.File, 0o600))
	cli(t, r, "stack", "init")
	require.NoError(t, r.Stack.SetConfig(t.Context(), config.Project+":proxmoxTokenSecret",
		auto.ConfigValue{Value: credentials.TokenSecret, Secret: true}))
	setSecrets(t, r, result)

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(text), "PassWord")

	files, said := adoptable(t, r, importcmd.Options{Talosconfig: talosconfig})
	assert.NotContains(t, said, "absent")
	importFile(t, r, files.Import)

	out := newOutput(t)
	_, err = r.Stack.Preview(t.Context(), optpreview.Refresh(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	assert.Contains(t, out.String(),
		"odd-work-3: live, for machine.kubelet.nodeIP.validSubnets[0], machine.kubelet.nodeIP.validSubnets[1]")

	for _, other := range []string{"cp01", "odd-work-1"} {
		assert.Contains(t, out.String(), other+": none, for it already has this configuration")
	}

	since := time.Now()

	requireUntouched(t, r)
	assert.Equal(t, deployed, r.Lab.World().Snapshot())
	assert.Equal(t, map[string][]talos.EventKind{"odd-work-3": {talos.Applied, talos.Applied}}, eventsOf(r, since),
		"by the program, and again by the provider")

	after := configurations(t, r, outputs)
	assert.Contains(t, after["odd-work-3"], "vm.swappiness: \"1\"", "what can be described stays")
	delete(before, "odd-work-3")
	delete(after, "odd-work-3")
	assert.Equal(t, before, after)
	requireNoChange(t, r.Stack)
}

// setSecrets does what ops generate says of settings that may be secret.
func setSecrets(t *testing.T, r *rehearsal.Rehearsal, result *generate.Result) {
	t.Helper()

	var said strings.Builder

	require.NoError(t, result.WriteSecrets(&said))

	_, commands, told := strings.Cut(said.String(), "Once the stack is there, set them:\n\n")
	require.True(t, told)

	form := regexp.MustCompile(`(?m)^  pulumi config set --secret --path 'talos-proxmox:pools\.\w+\.nodes\["1"\]\.patches\[0\]' < (\S+)/1\.yaml\n` +
		`  rm -r (\S+)\n\z`)
	dir := form.FindStringSubmatch(commands)
	require.NotNil(t, dir, commands)

	shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands)
	shell.Dir = r.Stack.Workspace().WorkDir()
	shell.Env = append(r.Backend.Environ(),
		pathWith(filepath.Dir(r.Engine().CLI())))
	printed, err := shell.CombinedOutput()
	require.NoError(t, err, string(printed))
	assert.NoDirExists(t, dir[2])
}

// byHand changes the configuration that a node runs with, as talosctl would.
func byHand(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap, name string, change func(*v1alpha1.Config)) {
	t.Helper()

	target, credentials := nodeOf(t, r, outputs, name)

	system, err := talosapi.Ask(t.Context(), target, credentials)
	require.NoError(t, err)

	changed, err := system.Configuration.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		change(c)

		return nil
	})
	require.NoError(t, err)

	text, err := changed.Bytes()
	require.NoError(t, err)
	require.NoError(t, talosapi.ApplyLive(t.Context(), target, credentials, text))
}

// nodeOf is a node of the rehearsal, with an administrator's credentials.
func nodeOf(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap, name string) (talosapi.Target,
	talosapi.Credentials,
) {
	t.Helper()

	config, err := clientconfig.FromString(outputs[contract.OutputTalosconfig].Value.(string))
	require.NoError(t, err)

	c := config.Contexts[config.Context]

	return talosapi.Target{Name: name, Address: addressOf(r, name)},
		talosapi.Credentials{CA: c.CA, Certificate: c.Crt, Key: c.Key}
}

// configurations are what the nodes run with, by name.
func configurations(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) map[string]string {
	t.Helper()

	found := map[string]string{}

	for _, n := range r.Plan.Nodes() {
		target, credentials := nodeOf(t, r, outputs, n.Name)

		system, err := talosapi.Ask(t.Context(), target, credentials)
		require.NoError(t, err)

		text, err := system.Configuration.Bytes()
		require.NoError(t, err)

		found[n.Name] = string(text)
	}

	return found
}
