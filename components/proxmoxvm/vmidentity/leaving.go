package vmidentity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/tokens"
)

// CheckLeaving says why what runs in a VM of the state must not be taken down before the VM is deleted: another VM has
// its VMID. It asks Proxmox VE again. name is that of the VM's resource. The UUID is the one that the VM shows, or one
// that no machine shows.
func (i *Identities) CheckLeaving(ctx context.Context, name string) (uuid string, err error) {
	if i == nil {
		return noUUID, nil
	}

	if err := i.waitRead(ctx); err != nil {
		return noUUID, fmt.Errorf("%s: %w", strings.TrimSuffix(name, tokens.VMSuffix), err)
	}

	i.mu.Lock()
	m, known := i.state[name]
	i.mu.Unlock()

	if !known {
		return noUUID, fmt.Errorf("%s: %w", strings.TrimSuffix(name, tokens.VMSuffix), ErrUnknown)
	}

	c, err := i.check(ctx, m.Machine, m.urn)
	if c.Verdict == VerdictUnknown {
		return noUUID, fmt.Errorf("%s: %w: %s", m.Name, ErrUnknown, c.Why)
	}

	// What would keep its VM is heard before the node is taken down.
	if err == nil {
		err = errors.Join(m.checkDeletable(c.Found), i.checkOnce(m.VMID))
	}

	return cmp.Or(c.Found.Config.UUID, noUUID), err
}

// noUUID is the UUID of no machine.
const noUUID = "of no VM"
