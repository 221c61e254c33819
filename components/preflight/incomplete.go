package preflight

import (
	"context"
	"slices"

	"talos-proxmox/components/proxmoxapi"
)

// checkIncomplete finds VMs whose creation was cut off. The provider makes a VM in steps (a copy, its settings, its
// disks, its start); when one fails, the VM stays in the state as it would have become, and the next update would find
// nothing to do. Only what is off is looked at: the start is the last step.
func (c *checks) checkIncomplete(context.Context) error {
	for _, n := range c.plan.Nodes() {
		i := slices.IndexFunc(c.vms, func(v proxmoxapi.VM) bool {
			return v.ID == n.VMID && v.Name == n.Name && v.Stopped && !v.Container && !v.Template
		})
		if i < 0 {
			continue
		}

		found, known := c.report.vms[n.VMID]
		if !known {
			continue
		}

		_, disk := found.Config.Disks[n.Disks[0].Interface]

		// These tell a VM that was never whole. A disk that is too small does not: it may be one that could not be made
		// larger.
		if !disk || !slices.Contains(c.vms[i].Tags, c.plan.Cluster) {
			c.report.incomplete = append(c.report.incomplete, n.Name)
		}
	}

	return nil
}
