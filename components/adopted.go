package components

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// adopted runs before a node is configured that the state knows no configuration of. Where it runs already, in a cluster that is taken
// over, it may run with another one, which somebody has given it by hand: then this is a change like any other.
func (r *talosRollout) adopted(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.changing(args)
	if err != nil || c.Address == "" || c.credentials == (talosapi.Credentials{}) || !r.report.Exists(c.node) {
		return err
	}

	if r.ctx.DryRun() {
		// What a node that is made anew runs now is lost with it.
		if slices.Contains(r.plan.Replace, c.Name) || talosapi.Unconfigured(ctx, c.Target) {
			return nil
		}

		return r.foresee(ctx, c)
	}

	fresh, err := r.fresh(ctx, c)
	if err != nil || fresh || !talosapi.Founded(ctx, r.others(c), c.credentials) {
		return err
	}

	return r.change(ctx, c)
}

// fresh waits until a machine says whether it is one that waits for its first configuration.
func (r *talosRollout) fresh(ctx context.Context, c changing) (fresh bool, err error) {
	err = wait.Until(ctx, r.plan.NodeTimeout, r.say, func(ctx context.Context) (string, error) {
		err := talosapi.Answers(ctx, c.Target, c.credentials)
		if err == nil {
			return "", nil
		}

		if fresh = talosapi.Unconfigured(ctx, c.Target); fresh {
			return "", nil
		}

		return fmt.Sprintf("%s to answer at %s (%v)", c.Name, c.Address, err), nil
	})
	if err != nil {
		err = fmt.Errorf("%s is not configured: %w", c.Name, err)
	}

	return fresh, err
}
