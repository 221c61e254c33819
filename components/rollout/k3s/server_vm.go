package k3s

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// serverVM is the VM of a server: the one with its VMID, or with its name where no VMID is known, and with its SMBIOS
// UUID, as it was when it joined and as Kubernetes has it. The UUID alone is not enough: a restored backup has it, too.
func (r *Removals) serverVM(ctx context.Context, l leavingNode, s kubeapi.Server) (proxmoxapi.VM, bool, error) {
	vms, err := r.Proxmox.VMs(ctx)
	if err != nil {
		return proxmoxapi.VM{}, false, err
	}

	var found []proxmoxapi.VM

	for _, v := range vms {
		if v.Container || v.Template || !l.mayBe(v, vmidentity.OfCluster(v, r.Plan)) {
			continue
		}

		config, err := r.Proxmox.Config(ctx, v)
		if err != nil {
			return v, false, err
		}

		if config.UUID != "" && strings.EqualFold(config.UUID, s.Machine) &&
			(l.uuid == "" || strings.EqualFold(config.UUID, l.uuid)) {
			found = append(found, v)
		}
	}

	switch len(found) {
	case 0:
		return proxmoxapi.VM{}, false, nil
	case 1:
		return r.currentVM(ctx, found[0])
	default:
		return proxmoxapi.VM{}, false, fmt.Errorf("VMs %d and %d both have its SMBIOS UUID, and the state does not know "+
			"which of them it is: delete the copy, or give it another UUID", found[0].ID, found[1].ID)
	}
}

// mayBe says that a VM has the VMID of the node or, where none is known, its name. Soon after a VM was created, only
// its tags are known.
func (l leavingNode) mayBe(v proxmoxapi.VM, ofCluster bool) bool {
	if l.vmid != 0 || l.planned != nil {
		return v.ID == l.vmid || l.planned != nil && v.ID == l.planned.VMID
	}

	return v.Name == l.name || v.Name == "" && ofCluster
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
