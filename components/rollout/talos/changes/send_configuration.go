package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// sendConfiguration gives a node that runs its changed configuration, as the last thing before the provider does: to a
// node that has shown a certificate of this cluster, and to no other. What needs a reboot has had it by then.
func (r *Changes) sendConfiguration(ctx context.Context, c nodeChange) error {
	data, err := c.wanted.Bytes()
	if err != nil {
		return err
	}

	apply := talosapi.ApplyLive
	if r.Plan.Apply == spec.ApplyStaged {
		apply = talosapi.ApplyStaged
	}

	err = wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		err := apply(ctx, c.Target, c.credentials, data)

		switch {
		case err == nil:
			return nil
		case errors.As(err, new(talosapi.RejectedError)):
			return err
		default:
			return cmp.Or(r.checkNotReset(ctx, c), wait.For("%v", err))
		}
	})
	if err != nil {
		return fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return nil
}
