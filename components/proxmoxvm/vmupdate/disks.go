package vmupdate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// CheckDisksKept is a hook that refuses, in previews too, a change that removes a disk from a VM: provider 0.69.1 fails
// in the middle of it, and newer ones remove the disk with what is on it. To detach it by hand is no way: after a
// refresh the state has an entry without a place, which no update can take out.
func CheckDisksKept(p *plan.Plan, args *pulumi.ResourceHookArgs) error {
	var problems spec.Problems

	remedy := remake(p, hookutil.String(args.NewInputs, "name"), "without it")

	for i, disk := range proxmoxvm.Disks(args.OldInputs) {
		at := hookutil.String(disk, "interface")
		if at == "" || slices.ContainsFunc(proxmoxvm.Disks(args.NewInputs),
			func(d resource.PropertyMap) bool { return hookutil.String(d, "interface") == at }) {
			continue
		}

		path := "extraDisks"
		if i == 0 {
			path = "disk.interface"
		}

		problems.Add(path, "a disk is not removed from a VM, because its data would be lost",
			fmt.Sprintf("%s without %s, which has %d GiB on %s", hookutil.String(args.OldInputs, "name"), at,
				int(hookutil.Number(disk, "size")), hookutil.String(disk, "datastoreId")),
			"put it back (a disk without an interface gets the one after the previous disk); or "+remedy)
	}

	return problems.Err()
}

// remake is how the VM of a node is made again in another shape.
func remake(p *plan.Plan, node, shape string) string {
	if p.Bootstrap == spec.BootstrapExternal {
		return "take the node out of its cluster and its pool, run 'pulumi up', and put it back into the pool: all " +
			"data on its disks is lost"
	}

	if p.Replaces(node) {
		return "undo this change, remove the node from lifecycle.replace, where its name has had its effect, run " +
			"'pulumi up', then make the change and name the node there again: all data on its disks is lost"
	}

	return fmt.Sprintf("name the node in lifecycle.replace: its VM is recreated %s, and all data on its disks is lost",
		shape)
}

// CheckDisksNotSmaller refuses, in previews too, a change that makes a disk smaller than it is: the provider would
// write the whole configuration of the VM, and fail at the disk. A disk that was made larger by hand is no such change,
// as long as the state has the size that the configuration asks for.
func (u Hooks) CheckDisksNotSmaller(ctx context.Context, n plan.Node, args *pulumi.ResourceHookArgs) error {
	changed := slices.DeleteFunc(slices.Clone(n.Disks), func(d plan.Disk) bool {
		before := cmp.Or(diskSize(args.OldOutputs, d.Interface), diskSize(args.OldInputs, d.Interface))

		return before == 0 || before == d.SizeGiB
	})
	if len(changed) == 0 {
		return nil
	}

	v, there, err := u.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there || v.Name != n.Name {
		return u.inUpdates(err) // GrowDisks refuses a VM of another name.
	}

	has, err := u.Proxmox.Settings(ctx, v)
	if err != nil {
		return u.inUpdates(err)
	}

	var problems spec.Problems

	for _, d := range changed {
		size := has.Disk(d.Interface)
		if d.SizeGiB >= size {
			continue
		}

		key, named := ".extraDisks", fmt.Sprintf("set sizeGiB of the disk to at least %d", size)
		if d.Interface == n.Disks[0].Interface {
			key, named = ".diskGiB", fmt.Sprintf("set at least %d", size)
		}

		problems.Add("pools."+n.Pool+key, fmt.Sprintf("a disk does not shrink, and %s of VM %d on host %s (%s) has %d GiB",
			d.Interface, v.ID, v.Host, n.Name, size), strconv.Itoa(d.SizeGiB),
			named+"; or "+remake(u.Plan, n.Name, "with a smaller one"))
	}

	return problems.Err()
}

// diskSize is the size of a disk in GiB, as the inputs or outputs of a VM have it; 0 when they do not.
func diskSize(values resource.PropertyMap, at string) int {
	for _, disk := range proxmoxvm.Disks(values) {
		if hookutil.String(disk, "interface") == at {
			return int(hookutil.Number(disk, "size"))
		}
	}

	return 0
}

// GrowDisks makes the disks of a VM as large as the plan says, while it runs: the provider would write all options of
// its disks, restart it for that, and lose the size on the way.
func (u Hooks) GrowDisks(ctx context.Context, n plan.Node) error {
	v, there, err := u.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return err
	}

	if v.Name != n.Name {
		return fmt.Errorf("VM %d on host %s is %q, not %s: its disks are not changed", v.ID, v.Host, v.Name, n.Name)
	}

	settings, err := u.Proxmox.Settings(ctx, v)
	if err != nil {
		return err
	}

	for _, d := range n.Disks {
		if !grows(settings, d) {
			continue
		}

		has := settings.Disk(d.Interface)
		message := fmt.Sprintf("%s: disk %s grows from %d to %d GiB; the VM runs on", n.Name, d.Interface, has, d.SizeGiB)
		if u.Program.DryRun() {
			if err := u.Program.Log.Info(message, nil); err != nil {
				return err
			}

			continue
		}

		if err := u.Identities.CheckNow(ctx, n); err != nil {
			return fmt.Errorf("disk %s of VM %d on host %s is not changed: %w", d.Interface, v.ID, v.Host, err)
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
			return fmt.Errorf("disk %s of VM %d on host %s was enlarged, but its configuration says %d instead of "+
				"%d GiB. "+
				"Run 'qm disk rescan --vmid %d' there, then 'pulumi up' again", d.Interface, v.ID, v.Host, now, d.SizeGiB, v.ID)
		}
	}

	return nil
}
