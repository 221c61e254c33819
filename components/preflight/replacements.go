package preflight

import (
	"context"
	"errors"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checkReplacements checks nodes whose VM is to be made again like new ones: what stands in the way must be known before
// the former VM is deleted.
func (c *checker) checkReplacements(ctx context.Context) error {
	for _, n := range c.Plan.Nodes() {
		if c.Plan.Teardown || c.Absent[n.VMID] || !c.Recreates(n) || !c.CanAsk(n.Host) {
			continue
		}

		found, err := c.checkReplacement(ctx, n)

		switch {
		case err != nil:
			return err
		case slices.Contains(c.Incomplete, n.Name):
			c.Problems = append(c.Problems, found...)
		default:
			c.Replacements[n.Name] = append(c.Replacements[n.Name], found...)
		}
	}

	return nil
}

// checkReplacement finds what stands in the way of a new VM of a node.
func (c *checker) checkReplacement(ctx context.Context, n plan.Node) (spec.Problems, error) {
	as := checkerOf(c.AsNew(n), c.network)
	steps := []func(context.Context) error{
		as.checkMinimums, as.hosts.CheckHosts, as.checkTemplates, as.checkImages, as.hosts.CheckSSHUser,
	}

	// What the update's credentials may do is not known.
	if !c.permissions.ReadOnly {
		steps = append(steps, as.permissions.CheckNew)
	}

	for _, check := range steps {
		switch err := check(ctx); {
		case errors.Is(err, proxmoxapi.ErrRefused) && c.permissions.ReadOnly:
		case errors.Is(err, proxmoxapi.ErrRefused):
			as.Problems = append(as.Problems, refusal(err))
		case err != nil:
			return nil, err
		}
	}

	return as.Problems.Unique(), nil
}
