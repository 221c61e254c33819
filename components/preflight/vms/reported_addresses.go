package vms

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// CheckReportedAddresses compares the planned addresses of running nodes with those that their guest agents report.
// The plan decides what a node's address is: an agent is never a reason to stop, and one that does not answer is none
// to warn.
func (c *Checker) CheckReportedAddresses(ctx context.Context) error {
	var (
		nodes = c.Plan.Nodes()
		found = make([]*spec.Problem, len(nodes))
		group errgroup.Group
	)

	group.SetLimit(checks.MaxReaders)

	for i, n := range nodes {
		at := slices.IndexFunc(c.VMs, func(v proxmoxapi.VM) bool { return v.ID == n.VMID && v.Name == n.Name && !v.Template })
		if !n.Agent || !n.Address.IsValid() || at < 0 || c.VMs[at].Unreachable || c.VMs[at].Stopped {
			continue
		}

		group.Go(func() error {
			if links, err := c.Proxmox.Links(ctx, c.VMs[at]); err == nil {
				found[i] = proxmoxvm.CompareAddress(n, links)
			}

			return nil
		})
	}

	_ = group.Wait() // no function returns an error

	for _, problem := range found {
		if problem != nil {
			c.Warnings = append(c.Warnings, *problem)
		}
	}

	return ctx.Err()
}
