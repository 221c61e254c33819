package changes

import (
	"context"
	"fmt"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// upgradeTalos installs what the configuration wants to be installed.
func (r *Changes) upgradeTalos(ctx context.Context, c nodeChange, before talosapi.System) error {
	image, wanted := c.wanted.Machine().Install().Image(), talosimage.System(c.wanted)
	r.Progress(fmt.Sprintf("%s upgrades from %s to %s", c.Name, before.System, wanted))

	rebooting, err := talosapi.Install(ctx, c.Target, c.credentials, image, r.Plan.UpgradeTimeout)
	if err == nil && !rebooting {
		err = r.rebootInstalled(ctx, c)
	}

	if err != nil {
		return err
	}

	now, err := r.waitBooted(ctx, c, before)
	if err != nil {
		return err
	}

	if (impact.Change{Now: now.System, Wanted: wanted}).Upgrades() {
		return fmt.Errorf("it came back with %s, not with %s: its installer failed, or the new system did not come up; its "+
			"console says which", now.System, wanted)
	}

	return nil
}

// rebootInstalled has a node boot into a system that was installed while it ran, which took its time: the cluster may
// not do without the node any more.
func (r *Changes) rebootInstalled(ctx context.Context, c nodeChange) error {
	if err := r.waitDisruption(ctx, c, impact.EffectUpgrade); err != nil {
		return fmt.Errorf("it has installed %s and does not boot into it: %w", talosimage.System(c.wanted), err)
	}

	return talosapi.Reboot(ctx, c.Target, c.credentials)
}

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
