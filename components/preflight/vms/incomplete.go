package vms

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// CheckIncomplete finds VMs whose creation was cut off. The provider makes a VM in steps (a copy, its settings, its
// disks, its start); when one fails, the VM stays in the state as it would have become, and the next update would find
// nothing to do. The start is the last step: a VM that was started without its settings is one whose provider took a
// proxy's page for success.
func (c *Checker) CheckIncomplete(context.Context) error {
	for _, n := range c.Plan.Nodes() {
		i := slices.IndexFunc(c.VMs, func(v proxmoxapi.VM) bool {
			return v.ID == n.VMID && v.Name == n.Name && !v.Container && !v.Template
		})
		if i < 0 {
			continue
		}

		found, known := c.Identified[n.VMID]
		if !known {
			continue
		}

		if !c.VMs[i].Stopped {
			if found.Bare(n.Name, vmidentity.OwnerTags(c.Plan)) {
				c.Problems = append(c.Problems, spec.Problem{
					Path: "pools." + n.Pool, Value: n.Name,
					Rule:   fmt.Sprintf("VM %d on host %s %s", n.VMID, found.VM.Host, vmidentity.BareReason),
					Remedy: vmidentity.DeleteBare(found.VM),
				})
			}

			continue
		}

		_, disk := found.Config.Disks[n.Disks[0].Interface]

		// These tell a VM that was never whole. A disk that is too small does not: it may be one that could not be made
		// larger.
		if !disk || !slices.Contains(c.VMs[i].Tags, c.Plan.Cluster) {
			c.Incomplete = append(c.Incomplete, n.Name)
		}
	}

	return nil
}
