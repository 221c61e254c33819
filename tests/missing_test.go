package tests

import (
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/lab/world"
)

// TestMissingNodes: a node of the configuration is not part of the cluster any more. Each update says so, none takes down
// another node of its role, and what the messages say brings it back.
func TestMissingNodes(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.NewReplacer("count: 1", "count: 2",
		"drainTimeout: 3s", "drainTimeout: 3s, readyTimeout: 15s, nodeTimeout: 20s").Replace(threeAndOne)))
	outputs := upResult(t, r.Stack).Outputs
	api := kubernetesClient(t, outputs)

	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	c := dialNode(t, r, outputs, "home-control-1")

	for _, lost := range []struct{ node, change, value, refused string }{
		{
			"home-control-3", "pools.control.memoryMiB", "6144",
			"etcd has only two of its 3 planned members (missing: home-control-3)",
		},
		{
			"home-worker-2", "pools.worker.patches[0]", "machine: { env: { a: b } }",
			"these are not in Kubernetes: home-worker-2",
		},
	} {
		_, err := r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", vmids(r)[lost.node])
		require.NoError(t, err)

		members, err := c.EtcdMemberList(t.Context(), &machineapi.EtcdMemberListRequest{})
		require.NoError(t, err)

		for _, m := range members.GetMessages()[0].GetMembers() {
			if m.GetHostname() == lost.node {
				require.NoError(t, c.EtcdRemoveMemberByID(t.Context(),
					&machineapi.EtcdRemoveMemberByIDRequest{MemberId: m.GetId()}))
				assert.Contains(t, upResult(t, r.Stack).StdOut, lost.node+" is in Kubernetes, but not a member of etcd")
			}
		}

		require.NoError(t, api.CoreV1().Nodes().Delete(t.Context(), lost.node, metav1.DeleteOptions{}))
		assert.Contains(t, upResult(t, r.Stack).StdOut, lost.node+" is not in Kubernetes, so it runs no pods")

		set(t, r.Stack, lost.change, lost.value)
		assert.Contains(t, failUp(t, r.Stack), lost.refused)

		// The other change is undone, the node is recreated, and the change is made again.
		unset(t, r.Stack, strings.TrimSuffix(lost.change, "[0]"))
		set(t, r.Stack, "lifecycle.replace[0]", lost.node)
		set(t, r.Stack, "lifecycle.forceRemove[0]", lost.node)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireVoters(t, r, 3)

		unset(t, r.Stack, "lifecycle.replace")
		unset(t, r.Stack, "lifecycle.forceRemove")
		set(t, r.Stack, lost.change, lost.value)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
	}

	requireNoChange(t, r.Stack)
}
