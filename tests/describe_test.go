package tests

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/ops/adopt"
	"talos-proxmox/stacks/ops/describe"
	"talos-proxmox/tests/rehearsal"
)

// odd is a cluster that nobody would guess: numbers and names with holes, VMIDs that do not follow, a disk more, and machine
// configuration that no key stands for.
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
        "1": { memoryMiB: 2048, extraDisks: [{ sizeGiB: 12 }] }
        "3": { host: pve2, mac: "BC:24:11:00:00:07", labels: { tier: db }, patches: ["machine: { kernel: { modules: [{ name: br_netfilter }] } }"] }
`

// TestDescribe loses state and stack file of a cluster. What stands tells a stack file, with which it is taken over: nothing changes
// on any machine, and the preview is empty.
func TestDescribe(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, odd))
	outputs := up(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))

	deployed := r.Lab.World().Snapshot()
	talosconfig := filepath.Join(t.TempDir(), "talosconfig")
	require.NoError(t, os.WriteFile(talosconfig, []byte(outputs["talosconfig"].Value.(string)), 0o600))

	cli(t, r, "stack", "rm", "--force", "--yes")

	credentials := r.Lab.Credentials()
	result, err := describe.Stack(t.Context(), describe.Options{
		Access: proxmoxapi.Access{Endpoint: r.Lab.Endpoint(), Insecure: true, TokenID: credentials.TokenID, TokenSecret: credentials.TokenSecret},
		Tag:    "odd", Talosconfig: talosconfig,
	})
	require.NoError(t, err)
	assert.Equal(t, []string{
		"no VM tells what it booted first: the file names local:iso/talos-1.12.4.iso, which must be there when there is a new node",
		"how nodes get their addresses is not known: the file says reserved, which expects them from outside, from DHCP or from what the image holds; new nodes need that too",
		"who may log in to Proxmox VE is not in the file: pulumi config set --secret proxmoxTokenSecret",
	}, result.Notes)

	file := filepath.Join(r.Stack.Workspace().WorkDir(), "Pulumi."+r.Stack.Name()+".yaml")
	require.NoFileExists(t, file)
	require.NoError(t, os.WriteFile(file, result.File, 0o600))
	cli(t, r, "stack", "init")
	require.NoError(t, r.Stack.SetConfig(t.Context(), stacks.Project+":proxmoxTokenSecret", auto.ConfigValue{Value: credentials.TokenSecret, Secret: true}))

	files, said := adoptable(t, r, adopt.Options{Talosconfig: talosconfig})
	assert.NotContains(t, said, "absent")
	importFile(t, r, files.Import)

	before := configurations(t, r, outputs)
	requireUntouched(t, r)
	assert.Equal(t, deployed, r.Lab.World().Snapshot())
	assert.Equal(t, before, configurations(t, r, outputs))
	requireNoChange(t, r.Stack)
}

// configurations are what the nodes run with, by name.
func configurations(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap) map[string]string {
	t.Helper()

	config, err := clientconfig.FromString(outputs[stacks.OutputTalosconfig].Value.(string))
	require.NoError(t, err)

	c := config.Contexts[config.Context]
	found := map[string]string{}

	for _, n := range r.Plan.Nodes() {
		system, err := talosapi.Ask(t.Context(), talosapi.Target{Name: n.Name, Address: addressOf(r, n.Name)}, talosapi.Credentials{CA: c.CA, Certificate: c.Crt, Key: c.Key})
		require.NoError(t, err)

		text, err := system.Configuration.Bytes()
		require.NoError(t, err)

		found[n.Name] = string(text)
	}

	return found
}
