package vmidentity

import (
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// OwnerTags are the tags that all VMs of a cluster have.
func OwnerTags(p *plan.Plan) []string { return []string{p.Cluster, string(p.Distribution)} }

// Tagged says that a VM has all tags of an owner.
func Tagged(tags, owner []string) bool {
	return !slices.ContainsFunc(owner, func(tag string) bool { return !slices.Contains(tags, tag) })
}

// OfCluster says that a VM has the tags of a cluster's nodes.
func OfCluster(v proxmoxapi.VM, p *plan.Plan) bool {
	return Tagged(v.Tags, OwnerTags(p))
}

// OfNamesake says that a VM has the tags of a cluster that has the same name, and runs the other distribution.
func OfNamesake(v proxmoxapi.VM, p *plan.Plan) bool {
	for _, d := range []spec.Distribution{spec.DistributionTalos, spec.DistributionK3s} {
		if d != p.Distribution && Tagged(v.Tags, []string{p.Cluster, string(d)}) {
			return true
		}
	}

	return false
}

// NodeByVMID is the node with a VMID, and its pool.
func NodeByVMID(p *plan.Plan, vmid int) (plan.PlannedPool, plan.Node, bool) {
	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			if n.VMID == vmid {
				return pool, n, true
			}
		}
	}

	return plan.PlannedPool{}, plan.Node{}, false
}
