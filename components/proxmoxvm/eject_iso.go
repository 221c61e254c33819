package proxmoxvm

import (
	"context"
	"fmt"

	"talos-proxmox/components/plan"
)

// EjectISO removes the ISO file from the drive of a node, which runs from memory and boots from its disk next.
func EjectISO(ctx context.Context, proxmox Proxmox, n plan.Node) error {
	v, there, err := proxmox.Find(ctx, n.VMID)
	if err != nil {
		return err
	}

	if !there {
		return fmt.Errorf("%s: there is no VM with VMID %d to take the ISO file out of", n.Name, n.VMID)
	}

	return proxmox.Eject(ctx, v, n.CDROM)
}
