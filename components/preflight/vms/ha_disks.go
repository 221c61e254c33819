package vms

import (
	"context"
	"fmt"

	"talos-proxmox/components/preflight/checks"
)

// warnLocalDisks warns of high availability for VMs whose disks a host does not share: after its loss, no other host
// has what they start from. A replicated disk is a copy of before, which Proxmox VE does start.
func (c *Checker) warnLocalDisks(ctx context.Context) error {
	if c.Plan.Teardown {
		return nil
	}

	var shared map[string]bool

	for _, pool := range c.Plan.Pools {
		warned := map[string]bool{}

		for _, n := range pool.Nodes {
			// Once is enough, for replicated disks are none that a host shares.
			if n.HAGroup == "" && n.HA == nil || !c.Absent[n.VMID] {
				continue
			}

			if shared == nil {
				var err error

				switch shared, err = c.Proxmox.SharedStores(ctx); {
				case checks.EndChecks(err):
					return err
				case err != nil:
					c.Warnings.Add("pools."+pool.Name+haKey(n.HAGroup), fmt.Sprintf("could not determine whether the "+
						"datastores of its disks are shared: %v", err), "", "")

					return nil
				case len(shared) == 0:
					return nil // The credentials see none.
				}
			}

			for _, d := range n.Disks {
				// What is not listed, the credentials do not see.
				if is, known := shared[d.Datastore]; is || !known || warned[d.Datastore] {
					continue
				}

				warned[d.Datastore] = true

				c.Warnings.Add("pools."+pool.Name+haKey(n.HAGroup), "has no effect when a host is lost: datastore "+
					d.Datastore+" is not shared, and the VMs cannot start on another host without their disks", d.Datastore,
					"place the disks on shared storage (disk.datastore), or replicate them ('pvesr', on ZFS): the VMs then "+
						"start from the last copy")
			}
		}
	}

	return nil
}

// haKey is the key of a pool that high availability comes from.
func haKey(group string) string { return map[bool]string{false: ".ha", true: ".haGroup"}[group != ""] }
