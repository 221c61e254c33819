package vms

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// CheckRoles refuses another role for nodes that exist. Their VMs stay in the plan, so nothing would remove their
// members from etcd before they become workers.
func (c *Checker) CheckRoles(context.Context) error {
	for _, pool := range c.Plan.Pools {
		var others []string

		for _, v := range c.VMs {
			planned := slices.ContainsFunc(pool.Nodes, func(n plan.Node) bool { return n.VMID == v.ID })
			if planned && hasOtherRole(v, c.Plan, pool.Role) {
				others = append(others, fmt.Sprintf("%s (VMID %d on host %s)", v.Label(), v.ID, v.Host))
			}
		}

		if len(others) == 0 {
			continue
		}

		is, why := spec.RoleWorker, "a worker does not join etcd later"
		if pool.Role == spec.RoleWorker {
			is, why = spec.RoleControlPlane, "etcd would go on counting them"
		}

		c.Problems.Add("pools."+pool.Name+".role", fmt.Sprintf("does not change for nodes that exist, because %s; made with "+
			"the role %s: %s", why, is, checks.UpTo(others, 3)), string(pool.Role),
			fmt.Sprintf("write %s again; for nodes with the role %s, add a pool with another name, and then remove the nodes "+
				"of this one", is, pool.Role))
	}

	return nil
}

// hasOtherRole says that a VM of the cluster was made for the other role. Operators may add tags, so both may be there.
func hasOtherRole(v proxmoxapi.VM, p *plan.Plan, role spec.Role) bool {
	other := spec.RoleControlPlane
	if role == spec.RoleControlPlane {
		other = spec.RoleWorker
	}

	return vmidentity.OfCluster(v, p) && slices.Contains(v.Tags, string(other)) && !slices.Contains(v.Tags, string(role))
}
