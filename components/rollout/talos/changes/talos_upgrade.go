package changes

import (
	"context"
	"fmt"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
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
