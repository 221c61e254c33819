package components

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// leaving judges the nodes that the plan no longer has, by the VMs there are. Each asks etcd itself before it goes; but what
// cannot go as a whole must not begin.
func leaving(vms []proxmoxapi.VM, p *plan.Plan) plan.Problems {
	var (
		problems      plan.Problems
		all, controls []string
	)

	planned := map[int]bool{}
	for _, n := range p.Nodes() {
		planned[n.VMID] = true
	}

	for _, v := range vms {
		if planned[v.ID] || !slices.Contains(v.Tags, p.Cluster) || !slices.Contains(v.Tags, "talos") {
			continue
		}

		all = append(all, fmt.Sprintf("%s, VMID %d on host %s", v.Name, v.ID, v.Host))

		if slices.Contains(v.Tags, string(plan.ControlPlane)) {
			controls = append(controls, v.Name)
		}
	}

	if p.Teardown && len(all) > 0 {
		problems.Add("lifecycle.teardown", "lets go of every node, so no single one can be removed meanwhile", strings.Join(all, "; "),
			"put it back, or set teardown to false until it is gone")
	}

	if len(controls) == 0 {
		return problems
	}

	stay := len(p.ControlPlanes())
	before := stay + len(controls)

	switch {
	case p.Bootstrap == plan.External:
		problems.Add("pools", "a control plane of a cluster that somebody else configures cannot be removed: etcd would go on counting it",
			strings.Join(controls, ", "), "put it back; or take it out of etcd, delete its VM, and run 'pulumi refresh'")
	case stay < lifecycle.Needed(before):
		problems.Add("pools", fmt.Sprintf("%d of %d control planes would stay, and etcd needs %d of them: nothing is removed", stay, before, lifecycle.Needed(before)),
			"without "+strings.Join(controls, ", "), lifecycle.AtMost(before))
	}

	return problems
}
