package vmupdate

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/wait"
)

// Changes are the properties of a VM, as the provider names them, that ApplyOnline would change of it. A preview
// without an answer of Proxmox VE finds none.
func (u Hooks) Changes(ctx context.Context, args *pulumi.ResourceHookArgs) ([]string, error) {
	n, there := u.Nodes[args.Name]
	if !there {
		return nil, fmt.Errorf("%s is the VM of no node of the plan", args.Name)
	}

	if u.Program.DryRun() {
		short, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
		defer cancel()

		ctx = short
	}

	changes, err := u.changes(ctx, n, args)

	return changes, u.inUpdates(err)
}

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
