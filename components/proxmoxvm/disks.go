package proxmoxvm

import (
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// CheckDisksKept is a hook that refuses, in previews too, a change that removes a disk from a VM: provider 0.69.1 fails
// in the middle of it, and newer ones remove the disk with what is on it. To detach it by hand is no way: after a
// refresh the state has an entry without a place, which no update can take out.
func CheckDisksKept(p *plan.Plan, args *pulumi.ResourceHookArgs) error {
	var problems spec.Problems

	remedy := remake(p, "without it")

	for i, disk := range Disks(args.OldInputs) {
		at := hookutil.String(disk, "interface")
		if at == "" || slices.ContainsFunc(Disks(args.NewInputs),
			func(d resource.PropertyMap) bool { return hookutil.String(d, "interface") == at }) {
			continue
		}

		path := "extraDisks"
		if i == 0 {
			path = "disk.interface"
		}

		problems.Add(path, "a disk is not removed from a VM, for what is on it would be lost",
			fmt.Sprintf("%s without %s, which has %d GiB on %s", hookutil.String(args.OldInputs, "name"), at,
				int(hookutil.Number(disk, "size")), hookutil.String(disk, "datastoreId")),
			"put it back (one that states no interface has the next after the disk before it); or "+remedy)
	}

	return problems.Err()
}

// remake is how a VM is made again in another shape.
func remake(p *plan.Plan, shape string) string {
	if p.Bootstrap == spec.BootstrapExternal {
		return "take the node out of its cluster and its pool, run 'pulumi up', and put it back into the pool: all that " +
			"is on its disks goes"
	}

	return fmt.Sprintf("name the node in lifecycle.replace: its VM is made again %s, and all that is on its disks goes",
		shape)
}
