package vms

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// CheckResourcePools checks that the resource pools of nodes are there: Proxmox VE refuses to create a VM in another
// one and to move one there, in the middle of the update. It lists a pool to those only who may see it.
func (c *Checker) CheckResourcePools(ctx context.Context) error {
	joins := slices.DeleteFunc(slices.Clone(c.Plan.Nodes()), func(n plan.Node) bool {
		return n.ResourcePool == "" || slices.ContainsFunc(c.VMs, func(v proxmoxapi.VM) bool {
			return v.Pool == n.ResourcePool
		})
	})
	if len(joins) == 0 || c.Plan.Teardown {
		return nil
	}

	pools, err := c.Proxmox.ResourcePools(ctx)

	switch {
	case checks.EndChecks(err):
		return err
	case err != nil:
		c.Warnings.Add("pools."+joins[0].Pool+".resourcePool", fmt.Sprintf("could not determine whether it exists: %v", err),
			joins[0].ResourcePool, "")

		return nil
	}

	held, err := c.Proxmox.Permissions(ctx)
	if err != nil {
		return err
	}

	for _, n := range joins {
		if slices.Contains(pools, n.ResourcePool) {
			continue
		}

		path := "/pool/" + n.ResourcePool
		problem := spec.Problem{
			Path:  "pools." + n.Pool + ".resourcePool",
			Rule:  "does not exist in this Proxmox VE, or the credentials lack Pool.Audit on it",
			Value: n.ResourcePool,
			Remedy: "create it (Datacenter, Permissions, Pools), name one that exists, or grant Pool.Audit and " +
				"Pool.Allocate on " + path,
		}

		if held.On(path, "Pool.Audit") {
			c.Problems = append(c.Problems, problem)
		} else {
			c.Warnings = append(c.Warnings, problem)
		}
	}

	return nil
}
