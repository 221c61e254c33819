package changes

import (
	"context"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// expectedUUID is the SMBIOS UUID of the VM that was made for a node. The state has it, unless the VM is a clone: of
// those the provider does not read it.
func (r *Changes) expectedUUID(ctx context.Context, n plan.Node) (string, error) {
	if fromState, _ := r.UUIDs[n.Name].Get(ctx, wait.RequestTimeout); fromState != "" {
		return fromState, nil
	}

	return vmidentity.UUIDOf(ctx, r.Proxmox, n.VMID)
}
