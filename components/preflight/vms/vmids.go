package vms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// CheckVMIDs checks which VMs have the VMIDs of the plan, and that no VM of the cluster has the name of a node that is
// to be created with another VMID.
func (c *Checker) CheckVMIDs() {
	at := map[int]proxmoxapi.VM{}
	for _, v := range c.VMs {
		at[v.ID] = v
	}

	for _, n := range c.Plan.Nodes() {
		v, there := at[n.VMID]
		if !there {
			c.checkNameFree(n)

			continue
		}

		if problem := c.vmidConflict(v, n); problem != nil {
			c.Problems = append(c.Problems, *problem)
		}
	}
}

// checkNameFree refuses to create a node while a VM of the cluster has its name: two machines would have one MAC
// address and one Node in Kubernetes. One that is declared dead may stay on a host that does not answer.
func (c *Checker) checkNameFree(n plan.Node) {
	for _, v := range c.VMs {
		if v.Name != n.Name || v.Template || v.Container || !vmidentity.OfCluster(v, c.Plan) ||
			v.Unreachable && c.Plan.DeclaredDead(n.Name) {
			continue
		}

		c.Problems.Add("pools."+n.Pool+".vmids", fmt.Sprintf("VM %d on host %s is %s already, with the tags of this "+
			"cluster: a second VM of that name would have its MAC address and its Node in Kubernetes", v.ID, v.Host, v.Name),
			fmt.Sprintf("%s with VMID %d", n.Name, n.VMID),
			"give the pool its former VMIDs; to move the nodes to others, give them other names too; if the VM is a copy, "+
				"delete it, or take the tags off it")
	}
}

// vmidConflict says which VM has the VMID of a node, when it is not the node. What an unreachable host has been heard
// to say of a VM is old; the VM's tags are not.
func (c *Checker) vmidConflict(v proxmoxapi.VM, n plan.Node) *spec.Problem {
	p := c.Plan
	ours := vmidentity.OfCluster(v, p)

	switch {
	case v.Name == n.Name && !v.Container, ours && (v.Unreachable || v.Name == ""):
		return nil
	case v.Unreachable:
		return &spec.Problem{
			Path: "pools." + n.Pool + ".vmids", Value: n.Name,
			Rule: fmt.Sprintf("%d is a VM on host %s, which does not answer, without the tags %s and %s: its owner is "+
				"unknown", v.ID, v.Host, p.Cluster, p.Distribution),
			Remedy: "start the host, or choose another range",
		}
	case ours:
		return &spec.Problem{
			Path: "pools." + n.Pool + ".names", Rule: fmt.Sprintf("VMID %d is %q, a node of this cluster: a node keeps its name",
				v.ID, v.Name),
			Value: n.Name,
			Remedy: fmt.Sprintf("if the VM was renamed, rename it back: run 'qm set %d --name %s' on host %s; if the "+
				"configuration was changed, give the pool its former name, or its names the former pattern: the node must be "+
				"called %q",
				v.ID, n.Name, v.Host, v.Name),
		}
	default:
		return &spec.Problem{
			Path: "pools." + n.Pool + ".vmids", Rule: fmt.Sprintf("%d is taken by %q on host %s", v.ID, v.Name, v.Host),
			Value: n.Name, Remedy: fmt.Sprintf("choose another range (the next free VMID is %d), or remove that machine",
				c.freeVMID(v.ID, n.Pool)),
		}
	}
}

// freeVMID is the next VMID after another that no machine and no disk has, no node is to have and no other pool may.
// Each is offered once.
func (c *Checker) freeVMID(after int, pool string) int {
	taken := maps.Clone(c.withDisks)
	for _, v := range c.VMs {
		taken[v.ID] = true
	}

	for _, n := range c.Plan.Nodes() {
		taken[n.VMID] = true
	}

	others := checks.OtherRanges(c.Plan, pool, func(p plan.PlannedPool) []plan.Span[int] { return p.VMIDs })

	for free := after + 1; ; free++ {
		if i := slices.IndexFunc(others, func(s plan.Span[int]) bool { return s.First <= free && free <= s.Last }); i >= 0 {
			free = others[i].Last

			continue
		}

		if !taken[free] && !c.offered[free] {
			c.offered[free] = true

			return free
		}
	}
}

// maxConfigs bounds how many configurations are asked for at once.
const maxConfigs = 128

// CheckIdentities reads which VMs have the VMIDs of the plan. Whether they are those of the state is compared when the
// state is known: a program knows it of a resource only once that is registered.
func (c *Checker) CheckIdentities(ctx context.Context) error {
	planned := map[int]bool{}
	for _, n := range c.Plan.Nodes() {
		planned[n.VMID] = true
	}

	var (
		mu    sync.Mutex
		group errgroup.Group
	)

	group.SetLimit(maxConfigs)

	for _, v := range c.VMs {
		// An unreachable host has been named, with its nodes.
		if !planned[v.ID] || v.Unreachable {
			continue
		}

		group.Go(func() error {
			var config proxmoxapi.VMConfig

			if !v.Container {
				var err error
				config, err = c.Proxmox.Config(ctx, v)

				switch {
				case errors.Is(err, proxmoxapi.ErrRefused):
					return err
				case err != nil:
					mu.Lock()
					defer mu.Unlock()

					c.Warnings = append(c.Warnings, spec.Problem{
						Path: "proxmox.hosts", Rule: fmt.Sprintf("could not determine which VM has VMID %d on host "+
							"%s: %v", v.ID, v.Host, err),
						Remedy: "start that host: the VM is not changed until then",
					})

					return nil
				}
			}

			mu.Lock()
			defer mu.Unlock()

			c.Identified[v.ID] = vmidentity.Found{VM: v, Config: config}

			return nil
		})
	}

	return group.Wait()
}
