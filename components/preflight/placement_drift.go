package preflight

import (
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// placementDrift are the nodes whose VM is on another host than the plan would put it on now: hosts were added, or an
// operator has migrated it. The VM stays where it is.
func placementDrift(vms []proxmoxapi.VM, p *plan.Plan) []plan.Problem {
	if p.Rebalance {
		return nil
	}

	at := map[int]proxmoxapi.VM{}
	for _, v := range vms {
		at[v.ID] = v
	}

	var moved []plan.Problem

	for _, n := range p.Nodes() {
		if v, there := at[n.VMID]; there && v.Name == n.Name && v.Host != n.Host {
			moved = append(moved, plan.Problem{
				Path: "placement", Rule: n.Name + " is on host " + v.Host + ", the plan would make it on " + n.Host,
				Value:  "rebalance: false",
				Remedy: "it stays there; set placement.rebalance to move it by migration",
			})
		}
	}

	return moved
}
