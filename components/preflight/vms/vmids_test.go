package vms

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
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
