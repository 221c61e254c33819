package k3s

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// Removals decide whether a node may lose its machine, and take it out of the cluster before it does.
type Removals struct{ *Cluster }

// leavingNode is a node whose membership is about to be deleted, and its VM after it.
type leavingNode struct {
	name string
	// vmResource is the name of the resource of its VM.
	vmResource string
	// vmid and uuid are those of its machine, as they were when it joined; none where the state does not know.
	vmid int
	uuid string
	// planned is the node as the plan has it; nil: the node has left the plan.
	planned *plan.Node
	// gone says that its machine is known to be gone.
	gone bool
}

// isDead says that the machine of a node is gone, or declared to be dead in lifecycle.forceRemove.
func (r *Removals) isDead(l leavingNode) bool { return l.gone || r.Plan.DeclaredDead(l.name) }

// roleOf is what a node is to the cluster: one that the plan does not have is known to Kubernetes alone. In doubt it is
// a server, which goes by itself.
func (r *Removals) roleOf(ctx context.Context, l leavingNode) spec.Role {
	if l.planned != nil {
		return l.planned.Role
	}

	kube, err := r.anyKubernetes(ctx)
	if err != nil {
		return spec.RoleControlPlane
	}

	servers, err := kube.Servers(ctx)
	if _, is := servers[l.name]; err == nil && !is {
		return spec.RoleWorker
	}

	return spec.RoleControlPlane
}

// kubernetesOfOthers is Kubernetes by a server that stays. There is no client, and no error, where nothing has to be
// taken out of a cluster: the machine has etcd again, or an empty cluster is wanted.
func (r *Removals) kubernetesOfOthers(ctx context.Context, l leavingNode) (*kubeapi.Client, error) {
	others := slices.DeleteFunc(slices.Clone(r.Plan.ControlPlanes()), func(n plan.Node) bool { return n.Name == l.name })

	kube, unreachable, err := r.firstAnswering(ctx, others)
	if kube != nil || err != nil {
		return kube, err
	}

	if l.planned == nil || l.planned.Role != spec.RoleControlPlane {
		return nil, rollout.NoneReachable(unreachable)
	}

	own, whyNotOwn, err := r.firstAnswering(ctx, []plan.Node{*l.planned})

	switch {
	case err != nil:
		return nil, err
	case l.gone && own != nil:
		// A snapshot was restored there.
		return nil, nil //nolint:nilnil // nothing has to be done
	case own != nil:
		return own, nil
	case l.gone && r.noServerLeft(l.name):
		accepts, record, err := r.acceptsEmpty(ctx)

		switch {
		case err != nil:
			return nil, err
		case accepts:
			return nil, nil //nolint:nilnil // nothing is left
		default:
			return nil, k3sconfig.Lost(l.name, r.Plan.Cluster, record)
		}
	default:
		return nil, rollout.NoneReachable(append(unreachable, whyNotOwn...))
	}
}

// memberRemoval is what leaves etcd: the node, all servers that the plan does not have, and those whose machines are
// gone.
func (r *Removals) memberRemoval(l leavingNode, members []etcd.Member) etcd.MemberRemoval {
	removal := etcd.MemberRemoval{Members: members, Dead: slices.Clone(r.Plan.ForceRemove)}

	for _, m := range members {
		i := slices.IndexFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool { return n.Name == m.Name })
		gone := i >= 0 && r.Inventory.AbsentVMIDs()[r.Plan.ControlPlanes()[i].VMID]

		if i < 0 || gone || m.Name == l.name {
			removal.Leaving = append(removal.Leaving, m.Name)
		}

		if gone || m.Name == l.name && r.isDead(l) {
			removal.Dead = append(removal.Dead, m.Name)
		}
	}

	return removal
}

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
