package vmupdate

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/wait"
)

// ApplyOnline refuses what would take a disk away, make one smaller or change the firmware, makes disks larger, sets
// the CPU weight, and restores the resource pool.
func (u Hooks) ApplyOnline(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, there := u.Nodes[args.Name]
	if !there {
		return fmt.Errorf("%s is the VM of no node of the plan", args.Name)
	}

	if u.Program.DryRun() {
		short, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
		defer cancel()

		ctx = short
	}

	if err := u.checkPermissions(ctx, n, args); err != nil {
		return err
	}

	firmware := CheckFirmwareKept(u.Plan, n, args)
	if firmware != nil {
		// A refresh may have taken another VM for the node's.
		firmware = errors.Join(u.Identities.CheckSetUp(n), firmware)
	}

	if err := errors.Join(CheckDisksKept(u.Plan, args), firmware, u.CheckDisksNotSmaller(ctx, n, args)); err != nil {
		return err
	}

	return u.inUpdates(errors.Join(u.GrowDisks(ctx, n), u.noteCPUUnits(ctx, n, args), u.ApplyCPUUnits(ctx, n),
		u.RestorePool(ctx, n, args)))
}
