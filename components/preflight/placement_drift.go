package preflight

import (
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// placementDrift are the nodes whose VM is on another host than the plan would put it on now: hosts were added, or an
// operator has migrated it. The VM stays where it is.
func placementDrift(vms []proxmoxapi.VM, p *plan.Plan) []spec.Problem {
	if p.Rebalance {
		return nil
	}

	at := map[int]proxmoxapi.VM{}
	for _, v := range vms {
		at[v.ID] = v
	}

	var moved []spec.Problem

	for _, n := range p.Nodes() {
		if v, there := at[n.VMID]; there && v.Name == n.Name && v.Host != n.Host {
			moved = append(moved, spec.Problem{
				Path: "placement", Rule: n.Name + " is on host " + v.Host + ", the plan would make it on " + n.Host,
				Value:  "rebalance: false",
				Remedy: "it stays there; set placement.rebalance to move it by migration",
			})
		}
	}

	return moved
}
