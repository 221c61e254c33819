package components

import (
	"context"
	"fmt"
	"strings"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// startGrace is how long Proxmox VE may take to start a VM that it has shut down for a restart.
const startGrace = 20 * time.Second

// holdRunning holds that a VM runs, with all that was asked for. Proxmox VE starts it after the task of its restart has ended, which the
// provider does not wait for, and tells nobody why it does not.
func (r *restarts) holdRunning(ctx context.Context, n plan.Node, restarted bool) error {
	v, there, err := r.proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	if restarted {
		// A wait that is in vain is no error: the start below says why.
		_ = wait.Until(ctx, r.grace, r.say, func(ctx context.Context) (string, error) {
			if process, err := r.proxmox.Process(ctx, v); err != nil || process == 0 {
				return fmt.Sprintf("waiting for Proxmox VE to start VM %d", v.ID), err
			}

			return "", nil
		})
	}

	process, err := r.proxmox.Process(ctx, v)
	if err != nil {
		return err
	}

	if process == 0 {
		if err := r.identities.still(ctx, n); err != nil {
			return fmt.Errorf("VM %d is off, and is not started: %w", v.ID, err)
		}

		if err := r.proxmox.Start(ctx, v); err != nil {
			if again, asked := r.proxmox.Process(ctx, v); asked != nil || again == 0 {
				return fmt.Errorf("VM %d does not start: %w", v.ID, err)
			}
		}
	}

	if !restarted {
		return nil
	}

	settings, err := r.proxmox.Settings(ctx, v)
	if err == nil && len(settings.Pending) > 0 {
		err = fmt.Errorf("VM %d runs, and these of its settings still wait for a restart: %s", v.ID, strings.Join(settings.PendingKeys(), ", "))
	}

	return err
}

// grow makes the disks of a VM as large as the plan says, while it runs: the provider would write all options of its disks, restart it for
// that, and lose the size on the way. It runs in previews, too.
func (r *restarts) grow(ctx context.Context, n plan.Node) error {
	if r.ctx.DryRun() {
		short, cancel := context.WithTimeout(ctx, wait.Ask)
		defer cancel()

		ctx = short
	}

	v, there, err := r.proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	if v.Name != n.Name {
		return fmt.Errorf("VM %d on host %s is %q, not %s: its disks are left alone", v.ID, v.Host, v.Name, n.Name)
	}

	settings, err := r.proxmox.Settings(ctx, v)
	if err != nil {
		return err
	}

	for _, d := range n.Disks {
		has := settings.Disk(d.Interface)
		if has == 0 || has >= d.SizeGiB {
			continue
		}

		message := fmt.Sprintf("%s: disk %s grows from %d to %d GiB; the VM runs on", n.Name, d.Interface, has, d.SizeGiB)
		if r.ctx.DryRun() {
			if err := r.ctx.Log.Info(message, nil); err != nil {
				return err
			}

			continue
		}

		r.say(message)

		if err := r.proxmox.Resize(ctx, v, d.Interface, d.SizeGiB); err != nil {
			return fmt.Errorf("disk %s of VM %d on host %s cannot grow to %d GiB: %w", d.Interface, v.ID, v.Host, d.SizeGiB, err)
		}

		after, err := r.proxmox.Settings(ctx, v)
		if err != nil {
			return err
		}

		if now := after.Disk(d.Interface); now < d.SizeGiB {
			return fmt.Errorf("disk %s of VM %d on host %s was made larger, and its configuration says %d in place of %d GiB. Run 'qm disk rescan --vmid %d' there, "+
				"then 'pulumi up' again", d.Interface, v.ID, v.Host, now, d.SizeGiB, v.ID)
		}
	}

	return nil
}
