package vms

import (
	"talos-proxmox/components/proxmoxapi"
)

// WarnPlacementDrift warns of nodes whose VM is on another host than the plan would put it on now: hosts were added, or
// an operator has migrated it. The VM stays where it is.
func (c *Checker) WarnPlacementDrift() {
	if c.Plan.Rebalance {
		return
	}

	at := map[int]proxmoxapi.VM{}
	for _, v := range c.VMs {
		at[v.ID] = v
	}

	for _, n := range c.Plan.Nodes() {
		if v, there := at[n.VMID]; there && v.Name == n.Name && v.Host != n.Host &&
			!c.Plan.Replaces(n.Name) {
			c.Warnings.Add("placement", n.Name+" is on host "+v.Host+", but the plan would create it on "+n.Host,
				"rebalance: false", "it stays there; set placement.rebalance to move it by migration")
		}
	}
}
