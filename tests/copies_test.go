package tests

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/ops/importcmd"
)

// TestTwoCopies: two operators have a copy of the state each. One changes the cluster, and then the other runs the same
// update on the older copy. Nothing of what the first has made is harmed, and the messages lead on.
func TestTwoCopies(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(threeAndOne, "controlplane, count: 3", "controlplane, count: 1", 1)))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	// first changes the cluster, and leaves the older copy to the second.
	first := func(key, value string) (newest apitype.UntypedDeployment) {
		old, err := r.Stack.Export(t.Context())
		require.NoError(t, err)
		set(t, r.Stack, key, value)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		newest, err = r.Stack.Export(t.Context())
		require.NoError(t, err)
		require.NoError(t, r.Stack.Import(t.Context(), old))

		return newest
	}

	t.Run("a node more", func(t *testing.T) {
		first("pools.worker.count", "2")

		before := r.Lab.World().Snapshot()
		said := failUp(t, r.Stack)
		assert.Contains(t, said, "but not in this stack's state")
		assert.Equal(t, before, r.Lab.World().Snapshot())

		files, _ := adoptable(t, r, importcmd.Options{})
		importFile(t, r, files.Import)
		requireUntouched(t, r)
		requireNoChange(t, r.Stack)
		assert.Equal(t, before, r.Lab.World().Snapshot())
	})

	t.Run("a node less", func(t *testing.T) {
		first("pools.worker.count", "1")

		before := r.Lab.World().Snapshot()
		assert.Contains(t, failUp(t, r.Stack), "does not exist")

		_, err := r.Stack.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
		requireNoChange(t, r.Stack)
		assert.Equal(t, before, r.Lab.World().Snapshot())
	})

	t.Run("a node replaced", func(t *testing.T) {
		newest := first("lifecycle.replace[0]", "home-worker-1")

		before := r.Lab.World().Snapshot()
		out := newOutput(t)
		_, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.ErrorProgressStreams(out))
		require.Error(t, err)
		assert.Contains(t, out.String(), "It is not touched.")
		assert.Equal(t, before, r.Lab.World().Snapshot())

		// Without a preview, the node would leave the cluster before its VM is compared.
		since, evicted := time.Now(), len(calls(r, "/eviction"))
		said := failUp(t, r.Stack)
		assert.Regexp(t, `home-worker-1 is not removed: .*VMID 501 is "home-worker-1" on host pve .*, and the state has `+
			`home-worker-1 there \(UUID .*\)\. It is not touched\.`, said)
		assert.Equal(t, before, r.Lab.World().Snapshot())
		assert.Empty(t, r.Talos.Events(since))
		assert.Len(t, calls(r, "/eviction"), evicted)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		require.NoError(t, r.Stack.Import(t.Context(), newest))
		requireNoChange(t, r.Stack)
	})

	t.Run("a node on another VM", func(t *testing.T) {
		unset(t, r.Stack, "lifecycle.replace")

		old, err := r.Stack.Export(t.Context())
		require.NoError(t, err)

		set(t, r.Stack, "pools.worker.count", "0")
		up(t, r.Stack)
		set(t, r.Stack, "pools.worker.vmids", "601-609")
		set(t, r.Stack, "pools.worker.count", "1")

		api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
		ready := func() bool { return slices.Contains(readyNodes(t, api), "home-worker-1") }
		require.Eventually(t, ready, wait, 100*time.Millisecond)
		require.NoError(t, r.Stack.Import(t.Context(), old))

		before := r.Lab.World().Snapshot()

		// Whoever has the older copy finds the VM gone, and takes the node for dead.
		set(t, r.Stack, "pools.worker.vmids", "501-509")
		set(t, r.Stack, "pools.worker.count", "0")
		set(t, r.Stack, "lifecycle.forceRemove[0]", "home-worker-1")
		assert.Regexp(t, `home-worker-1 is not removed: Kubernetes has home-worker-1 on the machine with SMBIOS UUID .*, and `+
			`the state on .*: another copy of the state has replaced it, and it is not touched`, failUp(t, r.Stack))
		assert.Equal(t, before, r.Lab.World().Snapshot())
		assert.True(t, ready())
	})
}

// TestTwoCopiesOfK3s: one operator has replaced an agent, and another, who has the older copy of the state, takes the
// agent out. It keeps its pods, its Node, its firewall and its VM.
func TestTwoCopiesOfK3s(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s"))
	set(t, r.Stack, "firewall.enabled", "true")
	set(t, r.Stack, "pools.agent.count", "2")
	result := upResult(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	api := kubernetesClient(t, result.Outputs)

	old, err := r.Stack.Export(t.Context())
	require.NoError(t, err)
	set(t, r.Stack, "lifecycle.replace[0]", "edge-agent-2")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	newest, err := r.Stack.Export(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Stack.Import(t.Context(), old))

	before, evicted := r.Lab.World().Snapshot(), len(calls(r, "/eviction"))

	unset(t, r.Stack, "lifecycle.replace")
	set(t, r.Stack, "pools.agent.count", "1")
	assert.Regexp(t, `edge-agent-2 is not removed: .*VMID \d+ is "edge-agent-2" on host pve .*, and the state has `+
		`edge-agent-2 there \(UUID .*\)\. It is not touched\.`, failUp(t, r.Stack))
	assert.Equal(t, before, r.Lab.World().Snapshot())
	assert.Len(t, calls(r, "/eviction"), evicted)
	assert.Equal(t, []string{"edge-agent-1", "edge-agent-2", "edge-server-1"}, readyNodes(t, api))

	// With the newest state, it goes.
	require.NoError(t, r.Stack.Import(t.Context(), newest))
	up(t, r.Stack)
	assert.Equal(t, []string{"edge-agent-1", "edge-server-1"}, readyNodes(t, api))
	requireNoChange(t, r.Stack)
}
