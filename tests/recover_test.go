package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	stackconfig "talos-proxmox/stacks/config"
	"talos-proxmox/stacks/ops/importcmd"
	opsstate "talos-proxmox/stacks/ops/state"
	"talos-proxmox/tests/rehearsal"
)

// TestRecover deletes the state of a running cluster and brings it back from what stands on Proxmox VE, with either of
// the two sources of the cluster's secrets. One update, and no machine notices.
func TestRecover(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev", onRealKubernetes)
	result := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	contract, resources, deployed := contractOf(t, result), identities(t, r.Stack), r.Lab.World().Snapshot()
	protectedBefore := protected(t, r.Stack)
	talosconfig := filepath.Join(t.TempDir(), "talosconfig")
	require.NoError(t, os.WriteFile(talosconfig, []byte(result.Outputs["talosconfig"].Value.(string)), 0o600))

	bring := func(t *testing.T, o importcmd.Options) importcmd.Files {
		t.Helper()

		files, said := adoptable(t, r, o)
		assert.Regexp(t, `(?m)^found +k3s-dev-control-1-vm +VM 401 on host pve, UUID [0-9a-f-]{36}$`, said)
		assert.Regexp(t, `(?m)^found +k3s-dev-gpu-1-gpu +resource mapping k3s-dev-gpu-1$`, said)
		assert.Regexp(t, `(?m)^again +k3s-dev-worker-1-config +a node that has the configuration is not changed by it$`, said)

		importFile(t, r, files.Import)

		if o.Secrets == "" {
			requireKept(t, r)
		}

		requireUntouched(t, r)
		assert.Equal(t, resources, identities(t, r.Stack))
		assert.Equal(t, protectedBefore, protected(t, r.Stack))
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
		requireNoChange(t, r.Stack)

		return files
	}

	t.Run("from a talosconfig", func(t *testing.T) {
		lose(t, r)

		files := bring(t, importcmd.Options{Talosconfig: talosconfig})
		assert.Equal(t, contract, contractOf(t, upResult(t, r.Stack)))

		for _, path := range []string{files.Import, files.Secrets} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o600), info.Mode(), path)
		}

		text, err := os.ReadFile(files.Import)
		require.NoError(t, err)

		var bundle any

		require.NoError(t, yaml.Unmarshal(readFile(t, files.Secrets), &bundle))

		planted := map[string]string{"the API token": r.Lab.Credentials().TokenSecret}
		private(planted, "the bundle", bundle)
		require.Greater(t, len(planted), 8)
		requireHidden(t, asText(t, planted), map[string]string{"the import file": string(text)})

		t.Run("from a secrets bundle", func(t *testing.T) {
			lose(t, r)
			assert.Empty(t, bring(t, importcmd.Options{Secrets: files.Secrets}).Secrets)
			require.NoError(t, os.RemoveAll(filepath.Dir(files.Secrets)))
		})
	})

	t.Run("a part of it", func(t *testing.T) {
		cli(t, r, "state", "delete", "--yes", "--target-dependents", urnOf(t, r, "k3s-dev-worker-1-vm"))

		files, said := adoptable(t, r, importcmd.Options{})
		assert.Regexp(t, `^again  k3s-dev-worker-1-config  a node that has the configuration is not changed by it
found  k3s-dev-worker-1-vm      VM 501 on host pve, UUID [0-9a-f-]{36}
$`, said)

		importFile(t, r, files.Import)

		// The state of the cluster has hooks, that of the VM has none yet.
		set(t, r.Stack, "pools.worker.count", "0")
		assert.Contains(t, failUp(t, r.Stack), "because it is protected")
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
		set(t, r.Stack, "pools.worker.count", "1")

		up(t, r.Stack)
		assert.Equal(t, resources, identities(t, r.Stack))
		assert.Equal(t, protectedBefore, protected(t, r.Stack))
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
		requireNoChange(t, r.Stack)
	})

	t.Run("from the backend's own copies", func(t *testing.T) {
		dir := filepath.Join(r.Backend.Dir(), "state", ".pulumi")
		lose(t, r)

		copies, err := filepath.Glob(filepath.Join(dir, "backups", stackconfig.Project, "dev", "dev.*.json"))
		require.NoError(t, err)
		require.NotEmpty(t, copies)

		text, err := os.ReadFile(slices.Max(copies))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stacks", stackconfig.Project, "dev.json"), text, 0o600))
		assert.Equal(t, resources, identities(t, r.Stack))
		requireNoChange(t, r.Stack)
	})

	t.Run("nothing to bring back", func(t *testing.T) {
		_, _, err := tryAdopt(t, r, importcmd.Options{})
		require.EqualError(t, err, "the state of stack dev has all resources of the program: there is nothing to "+
			"import")
	})
}

// TestRecoverSources: images come back too, and what the drives held first is not put back into them.
func TestRecoverSources(t *testing.T) {
	t.Parallel()

	for _, p := range []pair{
		{"iso", "metal", "", "agent"}, {"factory", "metal", "iso", "static"}, {"factory", "nocloud", "disk", "static"},
	} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()

			highlyAvailable := strings.Replace(p.stack(), "worker: { role: worker,", "worker: { role: worker, haGroup: prefer,",
				1)
			require.NotEqual(t, p.stack(), highlyAvailable)

			r := rehearse(t, stackFile(t, highlyAvailable+"  talos-proxmox:firewall: { enabled: true }\n"))
			outputs := upResult(t, r.Stack).Outputs
			resources, deployed := identities(t, r.Stack), r.Lab.World().Snapshot()
			talosconfig := filepath.Join(t.TempDir(), "talosconfig")
			require.NoError(t, os.WriteFile(talosconfig, []byte(outputs["talosconfig"].Value.(string)), 0o600))

			lose(t, r)

			files, said := adoptable(t, r, importcmd.Options{Talosconfig: talosconfig})
			assert.NotContains(t, said, "absent")
			assert.NotContains(t, said, "cannot look up")
			importFile(t, r, files.Import)
			requireUntouched(t, r)
			assert.Equal(t, resources, identities(t, r.Stack))
			assert.Equal(t, deployed, r.Lab.World().Snapshot())
			requireNoChange(t, r.Stack)

			if p.addressing == "agent" {
				// No control plane is named to compare the secrets with: its guest agent knows where it is.
				cli(t, r, "state", "delete", "--yes", "--target-dependents", urnOf(t, r, "pair-worker-1-vm"))

				_, said := adoptable(t, r, importcmd.Options{})
				assert.Regexp(t, `(?m)^found +pair-worker-1-vm +VM 501 on host`, said)
				assert.NotContains(t, said, "no control plane has been configured yet")
			}
		})
	}
}

// TestRecoverTakenOver: a cluster whose secrets are in the configuration needs them from nowhere else.
func TestRecoverTakenOver(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	require.NoError(t, r.Stack.SetConfig(t.Context(), stackconfig.Project+":machineSecrets",
		auto.ConfigValue{Value: newBundle(t, config.TalosVersionCurrent), Secret: true}))
	up(t, r.Stack)

	resources, deployed := identities(t, r.Stack), r.Lab.World().Snapshot()

	lose(t, r)

	files, _ := adoptable(t, r, importcmd.Options{})
	assert.Empty(t, files.Secrets)
	importFile(t, r, files.Import)
	requireUntouched(t, r)
	assert.Equal(t, resources, identities(t, r.Stack))
	assert.Equal(t, deployed, r.Lab.World().Snapshot())
	requireNoChange(t, r.Stack)
}

// newBundle is a secrets bundle, as talosctl gen secrets makes one for a version of Talos.
func newBundle(t *testing.T, contract *config.VersionContract) string {
	t.Helper()

	bundle, err := secrets.NewBundle(secrets.NewClock(), contract)
	require.NoError(t, err)

	text, err := yaml.Marshal(bundle)
	require.NoError(t, err)

	return string(text)
}

// identities are the ids of all resources by their URNs. Those of providers and stashes are new each time that they are
// made.
func identities(t *testing.T, s auto.Stack) map[string]string {
	t.Helper()

	found := map[string]string{}

	for _, r := range state(t, s).Resources {
		found[string(r.URN)] = string(r.ID)

		if strings.HasPrefix(string(r.Type), "pulumi:providers:") || r.Type == "pulumi:index:Stash" {
			found[string(r.URN)] = ""
		}
	}

	return found
}

// protected are the resources that Pulumi does not delete.
func protected(t *testing.T, s auto.Stack) []string {
	t.Helper()

	var names []string

	for _, r := range state(t, s).Resources {
		if r.Protect {
			names = append(names, r.URN.Name())
		}
	}

	slices.Sort(names)

	return names
}

// requireKept tries to delete what was imported. It has no hooks that drain a node and compare its VM, so nothing goes
// before an update has given it hooks.
func requireKept(t *testing.T, r *rehearsal.Rehearsal) {
	t.Helper()

	imported, before := identities(t, r.Stack), r.Lab.World().Snapshot()

	const refused = "cannot take effect in the first update after one with lifecycle.teardown, or after an import"

	set(t, r.Stack, "pools.worker.count", "0")
	assert.Contains(t, failUp(t, r.Stack), "pools: the removal of a node "+refused)
	set(t, r.Stack, "pools.worker.count", "1")

	set(t, r.Stack, "lifecycle.replace[0]", "k3s-dev-worker-1")
	assert.Contains(t, failUp(t, r.Stack), "lifecycle.replace: "+refused)
	unset(t, r.Stack, "lifecycle.replace")

	out := newOutput(t)
	_, err := r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(), "because it is protected")

	assert.Equal(t, imported, identities(t, r.Stack))
	assert.Equal(t, before, r.Lab.World().Snapshot())
}

// requireUntouched runs the first update after an import: it asks Proxmox VE for nothing but to be read.
func requireUntouched(t *testing.T, r *rehearsal.Rehearsal) {
	t.Helper()

	before := len(r.Lab.Journal().Entries())
	_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(newOutput(t)), optup.Refresh())
	require.NoError(t, err)

	for _, e := range r.Lab.Journal().Entries()[before:] {
		assert.False(t, e.Face == "proxmox" && !strings.HasPrefix(e.Call, "GET "), "%s", e)
		assert.False(t, strings.HasSuffix(e.Call, "/Bootstrap"), "%s", e)
	}
}

// TestRecoverRefused: without the cluster's secrets, or with another's, nothing is written; nor where nothing stands.
func TestRecoverRefused(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")

	_, said, err := tryAdopt(t, r, importcmd.Options{})
	require.EqualError(t, err, "none of the resources of the program exist on Proxmox VE: to create them, run an "+
		"update")
	assert.Contains(t, said, "absent  k3s-dev-control-1-vm      no VM has VMID 401\n")

	up(t, r.Stack)
	lose(t, r)

	other, broken := filepath.Join(t.TempDir(), "secrets.yaml"), filepath.Join(t.TempDir(), "secrets.yaml")
	require.NoError(t, os.WriteFile(other, []byte(newBundle(t, config.TalosVersionCurrent)), 0o600))
	require.NoError(t, os.WriteFile(broken, []byte("cluster: {}\n"), 0o600))

	for want, o := range map[string]importcmd.Options{
		"the cluster's secrets are lost with the state: give either --talosconfig":     {},
		"broken is not a secrets bundle of Talos, as 'talosctl gen secrets' writes it": {Secrets: broken},
		"cannot be compared with what the cluster runs with: k3s-dev-control-1 ({control}) does not return its " +
			"configuration": {Secrets: other},
		"no such file": {Secrets: filepath.Join(t.TempDir(), "none")},
	} {
		want = strings.NewReplacer("{control}", addressOf(r, "k3s-dev-control-1"), "broken is", broken+" is").Replace(want)

		files, _, err := tryAdopt(t, r, o)
		require.ErrorContains(t, err, want)
		assert.Empty(t, files)
	}

	t.Run("an update on the lost state has made other secrets", func(t *testing.T) {
		assert.Contains(t, failUp(t, r.Stack),
			`VMID 401 is "k3s-dev-control-1" on host pve already, but not in this stack's state`)

		_, _, err := tryAdopt(t, r, importcmd.Options{})
		require.ErrorContains(t, err, "the secrets in the state are not accepted by the cluster: k3s-dev-control-1 (")
		require.ErrorContains(t, err, "pulumi state delete --force --target-dependents '"+urnOf(t, r, "k3s-dev-secrets")+
			"'), and run this again")

		// As it says.
		cli(t, r, "state", "delete", "--yes", "--force", "--target-dependents", urnOf(t, r, "k3s-dev-secrets"))

		_, _, err = tryAdopt(t, r, importcmd.Options{})
		require.ErrorContains(t, err, "the cluster's secrets are lost with the state")
	})

	t.Run("a controlled rebuild", func(t *testing.T) {
		lose(t, r)

		for _, n := range r.Plan.Nodes() {
			remove(t, r, n.VMID)
		}

		for _, m := range r.Lab.World().Snapshot().Mappings {
			require.NoError(t, r.Lab.World().DeleteMapping(m.Kind, m.ID))
		}

		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)
	})
}

// lose deletes the stack's state, and makes an empty stack in its place, as an operator has to.
func lose(t *testing.T, r *rehearsal.Rehearsal) {
	t.Helper()

	cli(t, r, "stack", "rm", "--force", "--yes", "--preserve-config")
	cli(t, r, "stack", "init", "--secrets-provider", secretsProvider) // as recovery.md says of a key in Vault
}

func tryAdopt(t *testing.T, r *rehearsal.Rehearsal, o importcmd.Options) (importcmd.Files, string, error) {
	t.Helper()

	stack, err := opsstate.On(t.Context(), r.Stack)
	require.NoError(t, err)

	out := newOutput(t)
	o.Dir, o.Out = filepath.Join(t.TempDir(), "state-backups"), out

	files, err := importcmd.Write(t.Context(), stack, o)

	return files, out.String(), err
}

func adoptable(t *testing.T, r *rehearsal.Rehearsal, o importcmd.Options) (importcmd.Files, string) {
	t.Helper()

	files, said, err := tryAdopt(t, r, o)
	require.NoError(t, err)

	return files, said
}

// importFile imports as the command says.
func importFile(t *testing.T, r *rehearsal.Rehearsal, file string) {
	t.Helper()

	cli(t, r, "import", "--file", file, "--generate-code=false", "--yes")
}
