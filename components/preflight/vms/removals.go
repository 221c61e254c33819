package vms

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// CheckRemovals checks the nodes that the plan no longer has, of Talos as of K3s. Each asks etcd itself before it goes;
// but what cannot go, or not as a whole, must not begin.
func (c *Checker) CheckRemovals(ctx context.Context) error {
	gone := c.UnplannedVMs()

	// A cluster of the same name has rules and files of the same names, whatever runs on it.
	namesakes := slices.DeleteFunc(slices.Clone(c.VMs), func(v proxmoxapi.VM) bool {
		return !vmidentity.OfNamesake(v, c.Plan)
	})

	if problem := nameInUse(slices.Concat(gone, namesakes), c.Plan, c.Absent); problem != nil {
		c.Problems = append(c.Problems, *problem)

		return nil
	}

	gone = slices.DeleteFunc(gone, c.neverNode)

	for _, v := range gone {
		if v.Unreachable {
			// What the hook of its deletion says in a preview comes after the program has ended.
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: "pools", Rule: v.Label() + " leaves the cluster, but cannot be deleted until its host answers",
				Value: v.Host, Remedy: "start the host",
			})
		}

		// On a host that does not answer, nothing is known.
		if vm, err := c.Proxmox.Config(ctx, v); err == nil && vm.Protection {
			c.Problems.Add("pools", "a VM that is protected is not removed, and its node must not leave the cluster before it",
				fmt.Sprintf("%s, VMID %d on host %s", v.Label(), v.ID, v.Host), "put the node back with "+
					"protection: false for its pool, run 'pulumi up --refresh', which also ends a protection that was set by "+
					"hand, then remove it")
		}
	}

	c.Problems = append(c.Problems, removalProblems(gone, c.Plan, c.Absent)...)

	return nil
}

// neverNode says that a VM with the tags of the cluster is no node that leaves: a template, or the copy of a node that
// is there, such as a restored backup.
func (c *Checker) neverNode(v proxmoxapi.VM) bool {
	return v.Template || v.Container || slices.ContainsFunc(c.Plan.Nodes(), func(n plan.Node) bool {
		return n.Name == v.Name && !c.Absent[n.VMID]
	})
}

// nameInUse finds another cluster of the same name: its control planes are there, and of this one's nodes there is
// none.
func nameInUse(others []proxmoxapi.VM, p *plan.Plan, absent map[int]bool) *spec.Problem {
	none := !slices.ContainsFunc(p.Nodes(), func(n plan.Node) bool { return !absent[n.VMID] })
	first := slices.IndexFunc(others,
		func(v proxmoxapi.VM) bool { return slices.Contains(v.Tags, string(spec.RoleControlPlane)) })

	if !none || first < 0 {
		return nil
	}

	v := others[first]

	return &spec.Problem{
		Path: "cluster.name", Value: p.Cluster,
		Rule: fmt.Sprintf("is in use on this Proxmox VE by VM %d (%s on host %s), which is not in this stack's "+
			"configuration, while none of the nodes of this stack exists", v.ID, v.Label(),
			v.Host),
		Remedy: "choose another name; or, if that VM belongs to this stack, put its VMIDs back",
	}
}

// removalProblems checks, by the VMs there are, the set of those who go.
func removalProblems(gone []proxmoxapi.VM, p *plan.Plan, absent map[int]bool) spec.Problems {
	var (
		problems      spec.Problems
		all, controls []string
		// alive are control planes that are not declared dead: they may have the data of etcd.
		alive bool
	)

	for _, v := range gone {
		all = append(all, fmt.Sprintf("%s, VMID %d on host %s", v.Label(), v.ID, v.Host))

		if slices.Contains(v.Tags, string(spec.RoleControlPlane)) {
			controls = append(controls, v.Label())
			alive = alive || !vmidentity.DeclaredDead(p, v, gone)
		}
	}

	if p.Teardown && len(all) > 0 {
		problems.Add("lifecycle.teardown", "removes every node, so a single node cannot be removed at the same time",
			strings.Join(all, "; "),
			"put the node back, or set teardown to false until it is removed")
	}

	if len(controls) == 0 {
		return problems
	}

	remaining := len(p.ControlPlanes())
	before := remaining + len(controls)

	switch {
	case p.Bootstrap == spec.BootstrapExternal:
		problems.Add("pools", "a control plane cannot be removed with bootstrap: external: etcd would go on counting it",
			strings.Join(controls, ", "), "put it back; or take it out of etcd, delete its VM, and run 'pulumi refresh'")
	case remaining < etcd.QuorumSize(before):
		problems.Add("pools", fmt.Sprintf("%d of %d control planes would stay, and etcd needs %d of them: nothing is removed",
			remaining, before, etcd.QuorumSize(before)),
			"without "+strings.Join(controls, ", "), etcd.AtMost(before))
	case alive &&
		!slices.ContainsFunc(p.ControlPlanes(), func(n plan.Node) bool { return !absent[n.VMID] }):
		// The new ones would find no etcd among the nodes of the plan.
		problems.Add("pools", "all control planes that have the data of etcd would leave in the update that creates the "+
			"others: nothing is removed", "without "+strings.Join(controls, ", "),
			"put them back, run 'pulumi up' to add the others, then remove them; or, where they are dead, name them in "+
				"lifecycle.forceRemove")
	}

	return problems
}
