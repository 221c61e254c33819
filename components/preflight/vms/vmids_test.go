package vms

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// TestFreeVMID: what is offered as free belongs to no other pool, whose nodes would want it later, and is offered once.
func TestFreeVMID(t *testing.T) {
	t.Parallel()

	c := New(checks.New(&plan.Plan{Pools: []plan.PlannedPool{
		{Name: "control", VMIDs: []plan.Span[int]{{First: 401, Last: 410}}},
		{Name: "worker", VMIDs: []plan.Span[int]{{First: 411, Last: 499}}},
	}}, nil))

	assert.Equal(t, 500, c.freeVMID(410, "control"))
	assert.Equal(t, 411, c.freeVMID(410, "worker"))
	assert.Equal(t, 501, c.freeVMID(410, "control"))
}

// TestNamesOfNewNodes: no node is created while a VM of the cluster has its name.
func TestNamesOfNewNodes(t *testing.T) {
	t.Parallel()

	p := &plan.Plan{
		Cluster: "c", Distribution: spec.DistributionTalos,
		Pools: []plan.PlannedPool{{Name: "worker", Nodes: []plan.Node{{Name: "c-worker-1", VMID: 511, Pool: "worker"}}}},
	}
	same := proxmoxapi.VM{ID: 501, Name: "c-worker-1", Host: "pve", Tags: []string{"c", "talos"}}
	template, foreign, away := same, same, same
	template.Template, foreign.Tags, away.Unreachable = true, nil, true

	for name, c := range map[string]struct {
		vm      proxmoxapi.VM
		dead    []string
		refused bool
	}{
		"its VM has another VMID":   {vm: same, refused: true},
		"its template":              {vm: template},
		"a VM of others":            {vm: foreign},
		"its host is down":          {vm: away, refused: true},
		"its host is down for good": {vm: away, dead: []string{"c-worker-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			with := *p
			with.ForceRemove = c.dead
			checker := New(checks.New(&with, nil))
			checker.VMs = []proxmoxapi.VM{c.vm}
			checker.CheckVMIDs()

			if !c.refused {
				assert.Empty(t, checker.Problems)

				return
			}

			assert.ErrorContains(t, checker.Problems.Err(), "pools.worker.vmids: VM 501 on host pve is c-worker-1 already, with "+
				"the tags of this cluster")
		})
	}
}
