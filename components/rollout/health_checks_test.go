package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

func TestCheckWorkers(t *testing.T) {
	p := &plan.Plan{MaxUnavailable: 2, Pools: []plan.PlannedPool{
		{Role: spec.RoleControlPlane, Nodes: []plan.Node{{Name: "c", Role: spec.RoleControlPlane}}},
		{Role: spec.RoleWorker, Nodes: []plan.Node{
			{Name: "w1", Role: spec.RoleWorker},
			{Name: "w2", Role: spec.RoleWorker},
			{Name: "w3", Role: spec.RoleWorker},
			{Name: "new", Role: spec.RoleWorker},
		}},
	}}

	// Neither a control plane nor a foreign node counts, nor a node that has not come yet, nor the node itself.
	nodes := []kubeapi.Node{{Name: "c"}, {Name: "foreign"}, {Name: "w1"}, {Name: "w2"}, {Name: "w3", Ready: true}}
	require.NoError(t, CheckWorkers(p, nodes, "w1"))

	nodes[4].Ready = false
	require.EqualError(t, CheckWorkers(p, nodes, "w1"),
		"2 of the workers may be unavailable (lifecycle.upgrade.maxUnavailable), and these are not ready: w2, w3")

	// One that an operator has cordoned takes no pods. The node itself may be cordoned, and one that this program has
	// cordoned is counted by the limiter.
	nodes[3] = kubeapi.Node{Name: "w2", Ready: true, Cordoned: true}
	require.EqualError(t, CheckWorkers(p, nodes, "w1"), "2 of the workers may be unavailable "+
		"(lifecycle.upgrade.maxUnavailable), and these are not ready: w3, and these are cordoned: w2 (not by this program: "+
		"uncordon them with kubectl, or raise the limit)")

	nodes[2].Ready = true
	require.NoError(t, CheckWorkers(p, nodes, "w2"))

	nodes[4] = kubeapi.Node{Name: "w3", Ready: true, Cordoned: true}
	require.EqualError(t, CheckWorkers(p, nodes, "w1"), "2 of the workers may be unavailable "+
		"(lifecycle.upgrade.maxUnavailable), and these are cordoned: w2, w3 (not by this program: uncordon them with "+
		"kubectl, or raise the limit)")

	nodes[4].Ours = true
	require.NoError(t, CheckWorkers(p, nodes, "w1"))
}
