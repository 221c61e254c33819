package proxmoxvm

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// UpdateHooks do, before a VM is updated, what the provider does not, or not well. Each thing is done only to a VM that
// has shown its UUID immediately before. They run in previews, too, and say there what they would do.
type UpdateHooks struct {
	Program    *pulumi.Context
	Plan       *plan.Plan
	Proxmox    Proxmox
	Identities *vmidentity.Identities
	Progress   wait.Reporter
	// Nodes of the plan, by the name of their VM.
	Nodes map[string]plan.Node
}

// ApplyOnline refuses what would take a disk away or change the firmware, makes disks larger, sets the CPU weight, and
// restores the resource pool.
func (u UpdateHooks) ApplyOnline(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, there := u.Nodes[args.Name]
	if !there {
		return fmt.Errorf("%s is the VM of no node of the plan", args.Name)
	}

	firmware := CheckFirmwareKept(u.Plan, n, args)
	if firmware != nil {
		// A refresh may have taken another VM for the node's.
		firmware = errors.Join(u.Identities.CheckSetUp(n), firmware)
	}

	if err := errors.Join(CheckDisksKept(u.Plan, args), firmware); err != nil {
		return err
	}

	if u.Program.DryRun() {
		short, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
		defer cancel()

		ctx = short
	}

	// A preview has said that Proxmox VE cannot be reached.
	err := errors.Join(u.GrowDisks(ctx, n), u.ApplyCPUUnits(ctx, n), u.RestorePool(ctx, n, args))
	if u.Program.DryRun() {
		return nil
	}

	return err
}

// GrowDisks makes the disks of a VM as large as the plan says, while it runs: the provider would write all options of
// its disks, restart it for that, and lose the size on the way.
func (u UpdateHooks) GrowDisks(ctx context.Context, n plan.Node) error {
	v, there, err := u.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	if v.Name != n.Name {
		return fmt.Errorf("VM %d on host %s is %q, not %s: its disks are left alone", v.ID, v.Host, v.Name, n.Name)
	}

	settings, err := u.Proxmox.Settings(ctx, v)
	if err != nil {
		return err
	}

	for _, d := range n.Disks {
		has := settings.Disk(d.Interface)
		if has == 0 || has >= d.SizeGiB {
			continue
		}

		message := fmt.Sprintf("%s: disk %s grows from %d to %d GiB; the VM runs on", n.Name, d.Interface, has, d.SizeGiB)
		if u.Program.DryRun() {
			if err := u.Program.Log.Info(message, nil); err != nil {
				return err
			}

			continue
		}

		if err := u.Identities.CheckNow(ctx, n); err != nil {
			return fmt.Errorf("disk %s of VM %d on host %s is left alone: %w", d.Interface, v.ID, v.Host, err)
		}

		u.Progress(message)

		if err := u.Proxmox.Resize(ctx, v, d.Interface, d.SizeGiB); err != nil {
			return fmt.Errorf("disk %s of VM %d on host %s cannot grow to %d GiB: %w", d.Interface, v.ID, v.Host, d.SizeGiB, err)
		}

		after, err := u.Proxmox.Settings(ctx, v)
		if err != nil {
			return err
		}

		if now := after.Disk(d.Interface); now < d.SizeGiB {
			return fmt.Errorf("disk %s of VM %d on host %s was made larger, and its configuration says %d in place of %d GiB. "+
				"Run 'qm disk rescan --vmid %d' there, then 'pulumi up' again", d.Interface, v.ID, v.Host, now, d.SizeGiB, v.ID)
		}
	}

	return nil
}
