package vms

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// TestPlacementDrift: a VM that is not where the plan would make it now is spoken of, and left alone.
func TestPlacementDrift(t *testing.T) {
	s := plantest.Spec()
	s.Pools["worker"] = spec.Pool{Role: spec.RoleWorker, Count: new(3), Addresses: "10.0.0.21-29"}
	p := plantest.New(t, s)

	vms := []proxmoxapi.VM{
		{ID: 401, Name: "c-control-1", Host: "a"},
		{ID: 501, Name: "c-worker-1", Host: "b"}, // planned on a
		{ID: 502, Name: "stranger", Host: "a"},   // not ours: reported elsewhere
	}

	c := New(checks.New(p, nil))
	c.VMs = vms
	c.WarnPlacementDrift()

	want := spec.Problems{{
		Path: "placement", Rule: "c-worker-1 is on host b, but the plan would create it on a", Value: "rebalance: " +
			"false",
		Remedy: "it stays there; set placement.rebalance to move it by migration",
	}}
	if diff := cmp.Diff(want, c.Warnings); diff != "" {
		t.Error(diff)
	}

	p.Rebalance = true

	c.Warnings = nil
	c.WarnPlacementDrift()

	if c.Warnings != nil {
		t.Errorf("%v is spoken of and moved", c.Warnings)
	}
}
