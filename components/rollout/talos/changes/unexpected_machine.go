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

// otherMachineError names the VM of a node that another machine answers for.
func otherMachineError(c nodeChange, shown string) error {
	return talosapi.OtherMachineError(c.Target, fmt.Sprintf("VM %d", c.node.VMID), shown)
}
