package vms

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

func TestRemovals(t *testing.T) {
	// made are the VMs of so many control planes, and of a worker.
	made := func(controls int) []proxmoxapi.VM {
		vms := []proxmoxapi.VM{
			{ID: 501, Name: "c-worker-1", Host: "pve", Tags: []string{"c", "worker", "talos"}},
			{ID: 9000, Name: "template"},
		}
		for i := range controls {
			vms = append(vms, proxmoxapi.VM{
				ID: 401 + i, Name: fmt.Sprintf("c-control-%d", i+1), Host: "pve",
				Tags: []string{"c", "controlplane", "talos"},
			})
		}

		return vms
	}

	planned := func(controls int, change ...func(*plan.Plan)) *plan.Plan {
		p := &plan.Plan{
			Distribution: spec.DistributionTalos, Cluster: "c", Bootstrap: spec.BootstrapPulumi,
			Pools: []plan.PlannedPool{
				{Role: spec.RoleControlPlane}, {Role: spec.RoleWorker, Nodes: []plan.Node{{VMID: 501, Name: "c-worker-1"}}},
			},
		}
		for i := range controls {
			p.Pools[0].Nodes = append(p.Pools[0].Nodes, plan.Node{VMID: 401 + i, Name: fmt.Sprintf("c-control-%d", i+1)})
		}

		for _, c := range change {
			c(p)
		}

		return p
	}

	teardown := func(p *plan.Plan) { p.Teardown = true }
	external := func(p *plan.Plan) { p.Bootstrap = spec.BootstrapExternal }
	noWorker := func(p *plan.Plan) { p.Pools = p.Pools[:1] }
	moved := func(p *plan.Plan) {
		p.Pools[0].Nodes = append(p.Pools[0].Nodes[1:], plan.Node{VMID: 411}, plan.Node{VMID: 412})
	}

	// instead has other control planes, and none of those that are there.
	instead := func(p *plan.Plan) {
		p.Pools[0].Nodes = []plan.Node{{VMID: 411}, {VMID: 412}, {VMID: 413}}
	}

	const leaves = "pools: all control planes that have the data of etcd would leave in the update that creates the " +
		"others: nothing is removed (given: without c-control-1); put them back, run 'pulumi up' to add the others, then " +
		"remove them; or, where they are dead, name them in lifecycle.forceRemove"

	for _, c := range []struct {
		from int
		to   *plan.Plan
		want string
	}{
		{1, planned(0, instead, func(p *plan.Plan) { p.ForceRemove = []string{"c-control-1"} }), ""},
		{1, planned(0, instead), leaves},
		// That an empty cluster is accepted is no word about one that lives.
		{1, planned(0, instead, func(p *plan.Plan) { p.AcceptEmpty = true }), leaves},
		{3, planned(3), ""},
		{3, planned(5), ""},
		{5, planned(3), ""},
		{3, planned(2), ""},
		{3, planned(3, noWorker), ""},
		{2, planned(2, moved), ""},
		{3, planned(1), "pools: 1 of 3 control planes would stay, and etcd needs 2 of them: nothing is removed (given: " +
			"without c-control-2, c-control-3); " +
			"remove at most 1 at a time"},
		{2, planned(1), "pools: 1 of 2 control planes would stay, and etcd needs 2 of them: nothing is removed (given: " +
			"without c-control-2); " +
			"add a control plane first"},
		{3, planned(2, external), "pools: a control plane cannot be removed with bootstrap: external: etcd would go on " +
			"counting it " +
			"(given: c-control-3); put it back; or take it out of etcd, delete its VM, and run 'pulumi refresh'"},
		{3, planned(3, teardown), ""},
		{3, planned(3, teardown, noWorker), "lifecycle.teardown: removes every node, so a single node cannot be " +
			"removed at the same time " +
			"(given: c-worker-1, VMID 501 on host pve); put the node back, or set teardown to false until it is " +
			"removed"},
	} {
		gone := (&checks.Checker{Plan: c.to, VMs: made(c.from)}).UnplannedVMs()
		found := removalProblems(gone, c.to, map[int]bool{411: true, 412: true, 413: true})

		if c.want == "" {
			assert.Empty(t, found)
		} else if assert.Len(t, found, 1) {
			assert.Equal(t, c.want, found[0].String())
		}
	}
}

// TestNeverNodes: templates with the tags of the cluster, and copies of nodes that are there, do not leave it.
func TestNeverNodes(t *testing.T) {
	p := &plan.Plan{
		Distribution: spec.DistributionTalos, Cluster: "c", Bootstrap: spec.BootstrapPulumi, Teardown: true,
		Pools: []plan.PlannedPool{{Role: spec.RoleControlPlane, Nodes: []plan.Node{{VMID: 401, Name: "c-control-1"}}}},
	}
	tags := []string{"c", "controlplane", "talos"}
	s := New(checks.New(p, preflighttest.FixedVMs{Listed: []proxmoxapi.VM{
		{ID: 401, Name: "c-control-1", Host: "pve", Tags: tags},
		{ID: 9401, Name: "c-control-1", Host: "pve", Tags: tags},
		{ID: 9000, Name: "c-template", Host: "pve", Tags: tags, Template: true},
	}}))

	require.NoError(t, s.Read(t.Context()))
	require.NoError(t, s.CheckRemovals(t.Context()))
	assert.Empty(t, s.Problems)
}

func TestProtectedStays(t *testing.T) {
	p := &plan.Plan{Distribution: spec.DistributionTalos, Cluster: "c", Bootstrap: spec.BootstrapPulumi}
	s := New(checks.New(p, protectedVMs{preflighttest.FixedVMs{Listed: []proxmoxapi.VM{{
		ID: 501, Name: "c-worker-1", Host: "pve",
		Tags: []string{"c", "worker", "talos"},
	}}}}))

	require.NoError(t, s.Read(t.Context()))
	require.NoError(t, s.CheckRemovals(t.Context()))
	assert.EqualError(t, s.Problems.Err(), "the configuration has 1 problem:\n"+
		"  - pools: a VM that is protected is not removed, and its node must not leave the cluster before it (given: "+
		"c-worker-1, VMID 501 on host pve); "+
		"put the node back with protection: false for its pool, run 'pulumi up --refresh', which also ends a protection "+
		"that was set by hand, then remove it")
}

// protectedVMs protects each VM.
type protectedVMs struct{ preflighttest.FixedVMs }

func (protectedVMs) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{Protection: true}, nil
}

// TestNameInUse: where none of a cluster's VMs is there and another cluster's control plane has its tags, the name is
// what is wrong.
func TestNameInUse(t *testing.T) {
	p := plantest.Template()
	other := proxmoxapi.VM{ID: 1000, Name: "c-control-1", Host: "pve3", Tags: []string{"c", "controlplane", "talos"}}
	worker := proxmoxapi.VM{ID: 1100, Name: "c-worker-1", Host: "pve3", Tags: []string{"c", "talos", "worker"}}
	none := map[int]bool{401: true, 402: true}

	problem := nameInUse([]proxmoxapi.VM{worker, other}, p, none)
	require.NotNil(t, problem)
	assert.Equal(t, "cluster.name: is in use on this Proxmox VE by VM 1000 (c-control-1 on host pve3), which is "+
		"not in this stack's configuration, while none of the nodes of this stack exists "+
		"(given: c); choose another name; or, if that VM belongs to this stack, put its VMIDs back", problem.String())

	assert.Nil(t, nameInUse([]proxmoxapi.VM{worker}, p, none), "no control plane")
	assert.Nil(t, nameInUse([]proxmoxapi.VM{other}, p, map[int]bool{401: true}), "a node is there")
	assert.Nil(t, nameInUse(nil, p, none))
}
