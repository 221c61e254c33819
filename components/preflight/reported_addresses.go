package preflight

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// checkReportedAddresses compares the planned addresses of running nodes with those that their guest agents report.
// The plan decides what a node's address is: an agent is never a reason to stop, and one that does not answer is none
// to warn.
func (c *checks) checkReportedAddresses(ctx context.Context) error {
	var (
		nodes = c.plan.Nodes()
		found = make([]*spec.Problem, len(nodes))
		group errgroup.Group
	)

	group.SetLimit(maxReaders)

	for i, n := range nodes {
		at := slices.IndexFunc(c.vms, func(v proxmoxapi.VM) bool { return v.ID == n.VMID && v.Name == n.Name && !v.Template })
		if !n.Agent || !n.Address.IsValid() || at < 0 || c.vms[at].Silent || c.vms[at].Stopped {
			continue
		}

		group.Go(func() error {
			if links, err := c.proxmox.Links(ctx, c.vms[at]); err == nil {
				found[i] = proxmoxvm.CompareAddress(n, links)
			}

			return nil
		})
	}

	_ = group.Wait() // no function returns an error

	for _, problem := range found {
		if problem != nil {
			c.warnings = append(c.warnings, *problem)
		}
	}

	return ctx.Err()
}
