package vmupdate

import (
	"context"
	"errors"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// online are the properties of a VM, as the provider names them, that ApplyOnline may change.
var online = []string{"disks", "cpu", "poolId"}

// checkPermissions checks that the credentials may do all of an update before any of it is done. Which properties it
// changes is only read if a privilege is missing.
func (u Hooks) checkPermissions(ctx context.Context, n plan.Node, args *pulumi.ResourceHookArgs) error {
	if u.CheckPermissions(args, online) == nil {
		return nil
	}

	changes, err := u.changes(ctx, n, args)

	return errors.Join(u.inUpdates(err), u.CheckPermissions(args, changes))
}

// changes are those of online that ApplyOnline would change.
func (u Hooks) changes(ctx context.Context, n plan.Node, args *pulumi.ResourceHookArgs) ([]string, error) {
	v, there, err := u.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return nil, err
	}

	settings, err := u.Proxmox.Settings(ctx, v)
	if err != nil {
		return nil, err
	}

	var changes []string

	if slices.ContainsFunc(n.Disks, func(d plan.Disk) bool { return grows(settings, d) }) {
		changes = append(changes, "disks")
	}

	if n.CPUUnits != 0 && settings.CPUUnits() != n.CPUUnits {
		changes = append(changes, "cpu")
	}

	lost, err := u.lostPool(ctx, n, args)
	if lost != nil {
		changes = append(changes, "poolId")
	}

	return changes, err
}

// grows says that a disk of a VM is smaller than the plan has it.
func grows(settings proxmoxapi.Settings, d plan.Disk) bool {
	has := settings.Disk(d.Interface)

	return has != 0 && has < d.SizeGiB
}

// lostPool is the VM of a node that is no longer in its resource pool; nil: it is there, or is to be in none.
func (u Hooks) lostPool(ctx context.Context, n plan.Node, args *pulumi.ResourceHookArgs) (*proxmoxapi.VM, error) {
	if n.ResourcePool == "" || hookutil.String(args.OldInputs, "poolId") != n.ResourcePool {
		return nil, nil //nolint:nilnil // no VM is no error
	}

	vms, err := u.Proxmox.VMs(ctx)
	if err != nil {
		return nil, err
	}

	at := slices.IndexFunc(vms, func(v proxmoxapi.VM) bool { return v.ID == n.VMID })
	if at < 0 || vms[at].Pool == n.ResourcePool {
		return nil, nil //nolint:nilnil // no VM is no error
	}

	return &vms[at], nil
}
