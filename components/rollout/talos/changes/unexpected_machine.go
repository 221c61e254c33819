package changes

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/talosapi"
)

// checkNotReset is why nothing is sent to a machine that answers in maintenance mode where a node with a configuration
// is expected; nil where none does.
func (r *Changes) checkNotReset(ctx context.Context, c nodeChange) error {
	machine, err := talosapi.ConnectMaintenance(ctx, c.Target)
	if err != nil {
		return nil //nolint:nilerr // none does
	}
	defer machine.Close()

	switch {
	case !strings.EqualFold(machine.UUID, c.UUID):
		return otherMachineError(c, machine.UUID)
	default:
		return fmt.Errorf("%s at %s has lost its configuration: its disk was wiped, or the node was reset. It "+
			"cannot leave the cluster by itself: to recreate it, name it in lifecycle.replace and "+
			"lifecycle.forceRemove, then run "+
			"'pulumi up' again", c.Name, c.Address)
	}
}

// otherMachineError is what is said of a machine in maintenance mode at a node's address that is not the node's VM.
func otherMachineError(c nodeChange, shown string) error {
	return fmt.Errorf("another machine answers at %s: it shows SMBIOS UUID %q, and VM %d has %s. Nothing was sent to "+
		"it. Find what has the address (a VM or a machine with the same address, an old DHCP lease), take it off the "+
		"network, then run 'pulumi up' again",
		c.Address, shown, c.node.VMID, c.UUID)
}
