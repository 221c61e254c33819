package tests

import (
	"slices"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/tests/lab/world"
)

// threeServers are three servers of K3s and an agent, which wait for less than the example's.
var threeServers = []string{
	"count: 1, addresses: 192.168.20.11-13", "count: 3, addresses: 192.168.20.11-19",
	"  talos-proxmox:network:",
	"  talos-proxmox:lifecycle: { drainTimeout: 10s, settleTimeout: 3s, nodeTimeout: 30s }\n  talos-proxmox:network:",
}

// lostCluster is what a server is refused that would begin a second cluster.
const lostCluster = "edge-server-1 is not removed: the cluster has no server left, so the data of etcd is lost: " +
	"edge-server-1 would start an empty cluster; " +
	"restore a snapshot of K3s on it (stacks/docs/k3s.md, Restore a snapshot); or, to start an empty cluster, set " +
	"lifecycle.acceptEmptyCluster to edge; " +
	"then run 'pulumi up' again"

// TestK3sServersComeAndGo: servers are made again and replaced, come and go, in one cluster with one etcd for all of
// its life.
func TestK3sServersComeAndGo(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s", threeServers...), onRealKubernetes)
	api := kubernetesAt(t, upResult(t, r.Stack).Outputs, addressOf(r, "edge-server-2"))
	remember(t, api)

	three := []string{"edge-server-1", "edge-server-2", "edge-server-3"}
	requireOneEtcd := func(t *testing.T, want ...string) {
		t.Helper()
		require.Equal(t, [][]string{want}, r.Ubuntu.Members(), "one etcd, with a member for each server")
		requireRemembered(t, api)
	}
	uuid := func(name string) any { return vmConfig(t, r, name)["smbios1"] }

	requireOneEtcd(t, three...)
	requireNoChange(t, r.Stack)

	t.Run("the first is deleted by hand", func(t *testing.T) {
		remove(t, r, vmids(r)["edge-server-1"])

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		up(t, r.Stack)
		requireOneEtcd(t, three...)
		requireNoChange(t, r.Stack)
	})

	t.Run("the first is replaced", func(t *testing.T) {
		was := uuid("edge-server-1")

		set(t, r.Stack, "lifecycle.replace[0]", "edge-server-1")
		up(t, r.Stack)
		requireOneEtcd(t, three...)
		requireNoChange(t, r.Stack)
		assert.NotEqual(t, was, uuid("edge-server-1"))
		assert.Equal(t, []string{"edge-agent-1", "edge-server-1", "edge-server-2", "edge-server-3"}, readyNodes(t, api))
	})

	t.Run("two are replaced", func(t *testing.T) {
		was := []any{uuid("edge-server-1"), uuid("edge-server-3")}

		unset(t, r.Stack, "lifecycle.replace")
		up(t, r.Stack)
		set(t, r.Stack, "lifecycle.replace[0]", "edge-server-3")
		set(t, r.Stack, "lifecycle.replace[1]", "edge-server-1")
		up(t, r.Stack)
		requireOneEtcd(t, three...)
		requireNoChange(t, r.Stack)
		assert.NotEqual(t, was[0], uuid("edge-server-1"))
		assert.NotEqual(t, was[1], uuid("edge-server-3"))
	})

	t.Run("3 to 1, to 2, to 1, to 3", func(t *testing.T) {
		unset(t, r.Stack, "lifecycle.replace")
		up(t, r.Stack)

		before := r.Lab.World().Snapshot()

		set(t, r.Stack, "pools.server.count", "1")
		assert.Contains(t, failUp(t, r.Stack),
			"pools: 1 of 3 control planes would stay, and etcd needs 2 of them: nothing is removed "+
				"(given: without edge-server-2, edge-server-3); remove at most 1 at a time")
		assert.Equal(t, before, r.Lab.World().Snapshot())

		set(t, r.Stack, "pools.server.count", "2")
		up(t, r.Stack)
		requireOneEtcd(t, three[:2]...)
		requireNoChange(t, r.Stack)
		assert.Equal(t, []string{"edge-agent-1", "edge-server-1", "edge-server-2"}, readyNodes(t, api))
		assert.NotContains(t, vmids(r), "edge-server-3")

		set(t, r.Stack, "pools.server.count", "1")
		assert.Contains(t, failPreview(t, r.Stack),
			"pools: 1 of 2 control planes would stay, and etcd needs 2 of them: nothing is removed "+
				"(given: without edge-server-2); add a control plane first")

		// Who comes back by a name is known again.
		set(t, r.Stack, "pools.server.count", "3")
		up(t, r.Stack)
		requireOneEtcd(t, three...)
	})

	t.Run("a dead one", func(t *testing.T) {
		_, err := r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", vmids(r)["edge-server-3"])
		require.NoError(t, err)
		require.Eventually(t, func() bool { return slices.Contains(readyNodes(t, api), "edge-server-3 (not ready)") }, wait,
			50*time.Millisecond)

		set(t, r.Stack, "lifecycle.replace[0]", "edge-server-3")
		said := failUp(t, r.Stack)
		assert.Contains(t, said,
			"edge-server-3 is not removed: the etcd member edge-server-3 is not healthy (it is not ready in Kubernetes)")
		assert.Contains(t, said, "if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again")
		requireOneEtcd(t, three...)

		set(t, r.Stack, "lifecycle.forceRemove[0]", "edge-server-3")
		up(t, r.Stack)
		requireOneEtcd(t, three...)
		assert.NotContains(t, readyNodes(t, api), "edge-server-3 (not ready)")

		unset(t, r.Stack, "lifecycle.forceRemove")
		unset(t, r.Stack, "lifecycle.replace")
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
	})

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

// TestK3sBeginsOnce: where the only server is gone, no second cluster begins in its place, unless an empty one is
// wanted.
func TestK3sBeginsOnce(t *testing.T) {
	t.Parallel()

	r := rehearse(t, example(t, "k3s", threeServers[2:]...))
	remember(t, kubernetesClient(t, upResult(t, r.Stack).Outputs))
	requireNoChange(t, r.Stack)

	remove(t, r, vmids(r)["edge-server-1"])

	_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
	require.NoError(t, err)

	assert.Contains(t, failPreview(t, r.Stack), lostCluster)

	// Again, for what fails may have left something that the next update takes for a go-ahead.
	for range 2 {
		assert.Contains(t, failUp(t, r.Stack), lostCluster)
		assert.Equal(t, [][]string{{"edge-server-1"}}, r.Ubuntu.Members(), "no other cluster begins")
	}

	set(t, r.Stack, "lifecycle.acceptEmptyCluster", "edge")
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	assert.Len(t, r.Ubuntu.Members(), 2)

	_, err = api.CoreV1().ConfigMaps("default").Get(t.Context(), "remembered", metav1.GetOptions{})
	require.Error(t, err, "it is empty")
	requireNoChange(t, r.Stack)

	// The key is still set: it counted once.
	remove(t, r, vmids(r)["edge-server-1"])

	_, err = r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
	assert.Contains(t, failUp(t, r.Stack), "lifecycle.acceptEmptyCluster was already applied once")
	assert.Len(t, r.Ubuntu.Members(), 2)

	cli(t, r, "state", "delete", "--yes", urnOf(t, r, "edge-empty"))
	up(t, r.Stack)
	assert.Len(t, r.Ubuntu.Members(), 3)
	requireNoChange(t, r.Stack)

	unset(t, r.Stack, "lifecycle.acceptEmptyCluster")
	up(t, r.Stack)
	requireNoChange(t, r.Stack)
}

// TestK3sIsKept: neither a destroy nor a replacement takes a machine of a cluster of K3s, be it of servers alone or
// with agents.
func TestK3sIsKept(t *testing.T) {
	t.Parallel()

	for name, agents := range map[string]string{"servers": "0", "with agents": "1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, example(t, "k3s", "role: worker, count: 1", "role: worker, count: "+agents))
			api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
			remember(t, api)

			before := r.Lab.World().Snapshot()
			out := newOutput(t)

			_, err := r.Stack.Destroy(t.Context(), optdestroy.ProgressStreams(out), optdestroy.ErrorProgressStreams(out))
			require.Error(t, err)
			assert.Contains(t, out.String(), "has delete hooks registered, but the program is not running")
			assert.Equal(t, before, r.Lab.World().Snapshot())

			_, err = r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
				optdestroy.ErrorProgressStreams(out))
			require.Error(t, err)
			assert.Regexp(t, "edge-(server|agent)-1 is in the configuration, so its machine is not removed; to "+
				"recreate it, name it in lifecycle.replace; "+
				"to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', "+
				"then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'",
				out.String())
			assert.Equal(t, before, r.Lab.World().Snapshot())

			out = newOutput(t)
			_, err = r.Stack.Up(t.Context(), optup.Replace([]string{urnOf(t, r, "edge-server-1-vm")}),
				optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
			require.Error(t, err)
			assert.Contains(t, out.String(), "edge-server-1 is in the configuration, so its machine is not removed")
			assert.Equal(t, before, r.Lab.World().Snapshot())
			requireRemembered(t, api)

			destroy(t, r.Stack)
			assert.Empty(t, r.Leftovers())
		})
	}
}

// remember puts something into Kubernetes that a cluster which begins again does not know.
func remember(t *testing.T, api kubernetes.Interface) {
	t.Helper()

	_, err := api.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "remembered"}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func requireRemembered(t *testing.T, api kubernetes.Interface) {
	t.Helper()

	_, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "remembered", metav1.GetOptions{})
	require.NoError(t, err)
}
