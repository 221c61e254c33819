package talos

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// ConfigureExisting runs before a node is configured that the state knows no configuration of. A node of an imported
// cluster may run already, with another configuration: then this is a change like any other.
func (r *Changes) ConfigureExisting(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.readChange(ctx, args)
	if err == nil && c.node.Role == spec.RoleControlPlane {
		r.bootstrap.ExpectMember()
	}

	if err != nil || c.Address == "" || c.credentials == (talosapi.Credentials{}) || !r.Inventory.Exists(c.node) {
		return err
	}

	if r.DryRun {
		// What a node runs that is replaced is lost with it.
		if slices.Contains(r.Plan.Replace, c.Name) || talosapi.Unconfigured(ctx, c.Target) {
			return nil
		}

		return r.preview(ctx, c)
	}

	unconfigured, err := r.unconfigured(ctx, c)
	if err != nil || unconfigured || !talosapi.Founded(ctx, r.others(c), c.credentials) {
		return err
	}

	return r.change(ctx, c)
}

// unconfigured waits until a machine says whether it is one that waits for its first configuration.
func (r *Changes) unconfigured(ctx context.Context, c nodeChange) (unconfigured bool, err error) {
	err = wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		err := talosapi.Answers(ctx, c.Target, c.credentials)
		if err == nil {
			return nil
		}

		if unconfigured = talosapi.Unconfigured(ctx, c.Target); unconfigured {
			return nil
		}

		return wait.For("%s to answer at %s (%v)", c.Name, c.Address, err)
	})
	if err != nil {
		err = fmt.Errorf("%s is not configured: %w", c.Name, err)
	}

	return unconfigured, err
}
