package changes

import (
	"context"
	"fmt"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// expectedUUID is the SMBIOS UUID of the VM that was made for a node. The state has it, unless the VM is a clone: of
// those the provider does not read it.
func (r *Changes) expectedUUID(ctx context.Context, n plan.Node) (string, error) {
	if fromState, _ := r.UUIDs[n.Name].Get(ctx, wait.RequestTimeout); fromState != "" {
		return fromState, nil
	}

	return r.proxmoxUUID(ctx, n)
}

// proxmoxUUID is the SMBIOS UUID that Proxmox VE gives the VM of a node.
func (r *Changes) proxmoxUUID(ctx context.Context, n plan.Node) (string, error) {
	v, there, err := r.Proxmox.Find(ctx, n.VMID)
	if err != nil {
		return "", err
	}

	if !there {
		return "", fmt.Errorf("there is no VM with VMID %d", n.VMID)
	}

	config, err := r.Proxmox.Config(ctx, v)
	if err == nil && config.UUID == "" {
		err = fmt.Errorf("VM %d states no SMBIOS UUID, so no machine can show that it is this VM; give it one "+
			"('qm set %d --smbios1 uuid=$(uuidgen)' on its host), and stop and start it", n.VMID, n.VMID)
	}

	return config.UUID, err
}
