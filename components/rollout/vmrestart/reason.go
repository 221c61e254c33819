package vmrestart

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

func (r *Hooks) readMachine(ctx context.Context, n plan.Node) (machineNow, error) {
	if r.DryRun {
		short, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
		defer cancel()

		ctx = short
	}

	v, there, err := r.Proxmox.Find(ctx, n.VMID)
	if err != nil || !there {
		return machineNow{}, err
	}

	if err := vmidentity.CheckReachable(v, n.Name); err != nil {
		return machineNow{}, err
	}

	process, err := r.Proxmox.Process(ctx, v)
	if err != nil || process == 0 {
		return machineNow{vm: v}, err
	}

	settings, err := r.Proxmox.Settings(ctx, v)

	waiting := settings.PendingKeys()
	if len(waiting) > 0 {
		waiting[len(waiting)-1] += ", since an earlier update"
	}

	return machineNow{v, process, strings.Join(waiting, ", "), settings.Current}, err
}

// reasonOf is why a change of a VM restarts it; empty: it does not.
func reasonOf(n plan.Node, now machineNow, changes []string, args *pulumi.ResourceHookArgs) string {
	why := strings.Join(proxmoxvm.Restarts(changes), ", ")
	if why == "" {
		why = now.pending
	}

	if why == "" && proxmoxvm.DisksPending(n, now.settings, changes, proxmoxvm.Disks(args.OldOutputs),
		proxmoxvm.Disks(args.NewInputs)) {
		why = "disks"
	}

	return why
}

// changesOf are the paths of what of a VM changes.
func changesOf(before, after resource.PropertyMap) []string {
	return slices.Collect(maps.Keys(plugin.NewDetailedDiffFromObjectDiff(before.Diff(after,
		resource.IsInternalPropertyKey), true)))
}

// properties are those that paths are about.
func properties(changes []string, restart bool) []string {
	var found []string
	for _, path := range changes {
		found = append(found, proxmoxvm.Property(path))
	}

	if restart {
		found = append(found, "started")
	}

	slices.Sort(found)

	return slices.Compact(found)
}
