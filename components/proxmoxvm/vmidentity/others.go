package vmidentity

import (
	"context"
	"fmt"

	"talos-proxmox/components/proxmoxapi"
)

// CheckOthers looks at the configuration of each VM that is not this stack's and may use a thing that is to be deleted.
// It returns the first error of uses.
func (i *Identities) CheckOthers(ctx context.Context, thing string, may func(proxmoxapi.VM) bool,
	uses func(proxmoxapi.VM, proxmoxapi.VMConfig) error,
) error {
	all, err := i.proxmox.VMs(ctx)
	if err != nil {
		return err
	}

	for _, v := range all {
		if v.Container || !may(v) {
			continue
		}

		ours, err := i.InStack(ctx, v)
		if err != nil {
			return err
		}

		if ours {
			continue
		}

		config, err := i.proxmox.Config(ctx, v)
		if err != nil {
			return fmt.Errorf("%s is to be deleted, and it is not known whether VM %d (%s) on host %s uses it: %w", thing,
				v.ID, v.Name, v.Host, err)
		}

		if err := uses(v, config); err != nil {
			return err
		}
	}

	return nil
}
