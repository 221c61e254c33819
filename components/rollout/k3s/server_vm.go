package k3s

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// serverVM is the VM of a server, told from all others by its SMBIOS UUID: as it was when it joined, and as
// Kubernetes has it.
func (r *Removals) serverVM(ctx context.Context, l leavingNode, s kubeapi.Server) (proxmoxapi.VM, bool, error) {
	vms, err := r.Proxmox.VMs(ctx)
	if err != nil {
		return proxmoxapi.VM{}, false, err
	}

	for _, v := range vms {
		named := v.Name == l.name || v.Name == "" && vmidentity.OfCluster(v, r.Plan)
		if v.Container || v.Template || !(v.ID == l.vmid || named || l.planned != nil && v.ID == l.planned.VMID) {
			continue
		}

		config, err := r.Proxmox.Config(ctx, v)
		if err != nil {
			return v, false, err
		}

		if config.UUID != "" && strings.EqualFold(config.UUID, s.Machine) &&
			(l.uuid == "" || strings.EqualFold(config.UUID, l.uuid)) {
			return r.currentVM(ctx, v)
		}
	}

	return proxmoxapi.VM{}, false, nil
}

// currentVM is a VM as its host knows it: only that says whether it is off.
func (r *Removals) currentVM(ctx context.Context, v proxmoxapi.VM) (proxmoxapi.VM, bool, error) {
	found, there, err := r.Proxmox.Find(ctx, v.ID)
	if err == nil && found.Unreachable {
		err = fmt.Errorf("host %s of VM %d: %w", v.Host, v.ID, proxmoxapi.ErrHostUnreachable)
	}

	return found, there, err
}

// isShutDown says whether the VM of a server is off.
func (r *Removals) isShutDown(ctx context.Context, l leavingNode, s kubeapi.Server) bool {
	machine, there, err := r.serverVM(ctx, l, s)

	return err == nil && there && machine.Stopped
}
