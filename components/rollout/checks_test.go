package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
)

func TestCheckWorkers(t *testing.T) {
	p := &plan.Plan{MaxUnavailable: 2, Pools: []plan.PlannedPool{
		{Role: plan.ControlPlane, Nodes: []plan.Node{{Name: "c", Role: plan.ControlPlane}}},
		{Role: plan.Worker, Nodes: []plan.Node{{Name: "w1", Role: plan.Worker}, {Name: "w2", Role: plan.Worker}, {Name: "w3", Role: plan.Worker}, {Name: "new", Role: plan.Worker}}},
	}}

	// Neither a control plane nor a foreign node counts, nor a node that has not come yet, nor the node itself.
	nodes := []kubeapi.Node{{Name: "c"}, {Name: "foreign"}, {Name: "w1"}, {Name: "w2"}, {Name: "w3", Ready: true}}
	require.NoError(t, CheckWorkers(p, nodes, "w1"))

	nodes[4].Ready = false
	require.EqualError(t, CheckWorkers(p, nodes, "w1"), "2 of the workers may be away (lifecycle.upgrade.maxUnavailable), and not ready are w2, w3")
}
