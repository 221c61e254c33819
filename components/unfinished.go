package components

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// lookForUnfinished finds VMs whose creation was cut off. The provider makes a VM in steps (a copy, its settings, its disks, its
// start); when one fails, the VM stays in the state as it would have become, and the next update would find nothing to do. Only
// what is off is looked at: the start is the last step.
func (s *survey) lookForUnfinished(ctx context.Context) error {
	for _, n := range s.plan.Nodes() {
		i := slices.IndexFunc(s.vms, func(v proxmoxapi.VM) bool {
			return v.ID == n.VMID && v.Name == n.Name && v.Stopped && !v.Container && !v.Template
		})
		if i < 0 {
			continue
		}

		config, err := s.proxmox.Config(ctx, s.vms[i])
		if err != nil {
			return fmt.Errorf("VM %d of %s: %w", n.VMID, n.Name, err)
		}

		// Only nodes of Talos that are configured here are asked before they go: a disk that could not be made larger must not cost
		// another its life.
		small := s.plan.Kind == plan.KindTalos && s.plan.Bootstrap != plan.External && config.Disks[n.Disks[0].Interface] < n.Disks[0].SizeGiB

		if small || !slices.Contains(s.vms[i].Tags, s.plan.Cluster) || !slices.ContainsFunc(config.MACs, func(mac string) bool { return strings.EqualFold(mac, n.MAC) }) {
			s.found.unfinished = append(s.found.unfinished, n.Name)
		}
	}

	return nil
}

// halfMade says that a node's VM is unfinished.
func (f *Findings) halfMade(n plan.Node) bool {
	return f != nil && slices.Contains(f.unfinished, n.Name)
}

// whole has an unfinished VM made anew where the state, too, says that its creation failed: either alone means nothing.
func whole(unfinished bool) []pulumi.ResourceOption {
	if !unfinished {
		return nil
	}

	// The engine's own word for a resource that was made and could not be initialized.
	return []pulumi.ResourceOption{pulumi.ReplaceOnChanges([]string{"#initerror"})}
}
