package preflight

import (
	"context"
	"errors"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checkReplacements checks nodes in lifecycle.replace like new ones: what stands in the way must be known before the
// former VM is deleted.
func (c *checker) checkReplacements(ctx context.Context) error {
	for _, n := range c.Plan.Nodes() {
		if c.Plan.Teardown || c.Absent[n.VMID] || !c.Plan.Replaces(n.Name) || !c.CanAsk(n.Host) {
			continue
		}

		found, err := c.checkReplacement(ctx, n)
		if err != nil {
			return err
		}

		c.Replacements[n.Name] = append(c.Replacements[n.Name], found...)
	}

	return nil
}

// checkReplacement finds what stands in the way of a new VM of a node. Names that had their effect may stay in the
// list, so what could not be asked ends no run by itself.
func (c *checker) checkReplacement(ctx context.Context, n plan.Node) (spec.Problems, error) {
	as := checkerOf(c.AsNew(n), c.network)
	as.permissions.ReadOnly = c.permissions.ReadOnly
	steps := []func(context.Context) error{as.hosts.CheckHosts, as.checkTemplates, as.checkImages, as.hosts.CheckSSHUser}

	if n.GPU != nil {
		steps = append(steps, as.hosts.CheckGPUs)
	}

	var refused []error

	for _, check := range steps {
		switch err := check(ctx); {
		case err == nil:
		case errors.Is(err, proxmoxapi.ErrRefused):
			refused = append(refused, err)
		case errors.Is(err, proxmoxapi.ErrUnreachable), errors.Is(err, proxmoxapi.ErrOffline), ctx.Err() != nil:
			return nil, err
		default:
			as.Problems.Add("lifecycle.replace", "could not determine whether a new VM can be created: "+err.Error(), n.Name,
				"run 'pulumi up' again")
		}
	}

	// What the update's credentials may do is not known with those that may only read.
	if !as.permissions.ReadOnly {
		as.permissions.CheckNew(c.permissions.Held)
	}

	as.noteRefused(refused)

	return as.Problems.Unique(), nil
}
