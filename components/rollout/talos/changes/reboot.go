package changes

import (
	"context"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// reboot has the node boot with its configuration.
func (r *Changes) reboot(ctx context.Context, c nodeChange) error {
	data, err := c.wanted.Bytes()
	if err != nil {
		return err
	}

	before, err := r.askAnswering(ctx, c.Target, c.credentials)
	if err != nil {
		return err
	}

	r.Progress(c.Name + " reboots")

	if err := talosapi.ApplyAndReboot(ctx, c.Target, c.credentials, data); err != nil {
		return err
	}

	_, err = r.waitBooted(ctx, c, before)

	return err
}

// waitBooted waits until the node has booted again and what runs on it is up.
func (r *Changes) waitBooted(ctx context.Context, c nodeChange, before talosapi.System) (talosapi.System, error) {
	var now talosapi.System

	err := wait.Until(ctx, r.Plan.UpgradeTimeout, r.Progress, func(ctx context.Context) (err error) {
		now, err = talosapi.Ask(ctx, c.Target, c.credentials)

		switch {
		case err != nil:
			return wait.For("%s to come back (%v)", c.Name, err)
		case now.Boot == before.Boot:
			return wait.For("%s to go down", c.Name)
		case !now.Running:
			return wait.For("%s to be up (it is %s)", c.Name, now.Stage)
		default:
			return talosapi.CheckServices(ctx, c.Target, c.credentials, c.node.Role == spec.RoleControlPlane)
		}
	})

	return now, err
}
