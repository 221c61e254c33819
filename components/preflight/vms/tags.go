package vms

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// CheckTags refuses tags that name another cluster: that cluster's program would take the VMs that have them for nodes
// of its own which are to be removed.
func (c *Checker) CheckTags(context.Context) error {
	for _, pool := range c.Plan.Pools {
		if len(pool.Nodes) == 0 {
			continue
		}

		// The nodes of a pool have the same.
		for _, tag := range pool.Nodes[0].Tags {
			at := slices.IndexFunc(c.VMs, func(v proxmoxapi.VM) bool { return c.namesCluster(tag, v, pool.Nodes[0]) })
			if at < 0 {
				continue
			}

			v := c.VMs[at]
			c.Problems.Add("pools."+pool.Name+".tags", fmt.Sprintf("must not hold the name of another cluster on this Proxmox "+
				"VE, which would treat the nodes as its own: %s (VMID %d on host %s) belongs to cluster %s", v.Label(),
				v.ID, v.Host,
				tag), tag, "choose another tag (pools."+pool.Name+".tags, defaults.tags)")
		}
	}

	return nil
}

// namesCluster says that a tag of a node is the name of the cluster that a VM belongs to. Several clusters may share a
// tag: it is the name of one where the VM has no other, or is called by it.
func (c *Checker) namesCluster(tag string, v proxmoxapi.VM, n plan.Node) bool {
	kinds := []string{string(spec.DistributionTalos), string(spec.DistributionK3s)}
	roles := []string{string(spec.RoleControlPlane), string(spec.RoleWorker)}
	shared := slices.Concat(kinds, roles)
	_, _, planned := vmidentity.NodeByVMID(c.Plan, v.ID)

	if tag == c.Plan.Cluster || slices.Contains(shared, tag) || planned || vmidentity.OfCluster(v, c.Plan) ||
		!slices.Contains(v.Tags, tag) {
		return false
	}

	kind := slices.ContainsFunc(kinds, func(kind string) bool {
		return slices.Contains(v.Tags, kind) && slices.Contains(n.Tags, kind)
	})
	role := slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(v.Tags, role) })
	alone := !slices.ContainsFunc(v.Tags, func(t string) bool { return t != tag && !slices.Contains(shared, t) })

	return kind && role && (alone || strings.HasPrefix(v.Name, tag+"-"))
}
