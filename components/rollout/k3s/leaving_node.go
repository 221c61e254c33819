package k3s

import (
	"context"
	"slices"
	"strings"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// leavingNode is a node whose membership is about to be deleted, and its VM after it.
type leavingNode struct {
	name string
	// vmResource is the name of the resource of its VM.
	vmResource string
	// vmid and uuid are those of its machine, as they were when it joined; none where the state does not know.
	vmid int
	uuid string
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
	// dead says that it is known to be gone, or said to be.
	dead bool
}

// machineGone says whether the machine that has joined is no more, as when its VM was deleted outside of Pulumi: the VM
// that is there now is one that the program has made since. Where the state does not know which machine that was,
// Kubernetes does.
func (r *Removals) machineGone(ctx context.Context, l leavingNode) (bool, error) {
	if r.Inventory.AbsentVMIDs()[l.planned.VMID] {
		return true, nil
	}

	machine, there, err := r.Proxmox.Find(ctx, l.planned.VMID)
	if err != nil || !there {
		return !there && err == nil, err
	}

	was := l.uuid
	if was == "" {
		if was, err = r.machineUUIDOf(ctx, l.name); err != nil || was == "" {
			return false, err
		}
	}

	config, err := r.Proxmox.Config(ctx, machine)
	if err != nil {
		return false, err
	}

	if strings.EqualFold(was, config.UUID) {
		return false, nil
	}

	return true, vmidentity.CheckSetUp(l.name, vmidentity.Found{VM: machine, Config: config}, vmidentity.OwnerTags(r.Plan))
}

// mayReplaceOther says that whatever VM is in the place of a node may be deleted, as lifecycle.replace says. An entry
// that has had its effect says nothing of this VM.
func (r *Removals) mayReplaceOther(l leavingNode) bool {
	if !r.Plan.Replaces(l.name) {
		return false
	}

	replaced, err := r.Identities.Replaced(l.vmResource)

	return err == nil && !replaced
}

// machineUUIDOf is the SMBIOS UUID of a node, as Kubernetes has it.
func (r *Removals) machineUUIDOf(ctx context.Context, name string) (string, error) {
	kube, err := r.anyKubernetes(ctx)
	if err != nil {
		// Only the machine that Kubernetes knows is worth anything to a cluster.
		return "", nil //nolint:nilerr // it stays then
	}

	node, _, err := kube.Node(ctx, name)

	return node.Machine, err
}

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
	case l.dead && own != nil:
		// A snapshot was restored there.
		return nil, nil //nolint:nilnil // nothing has to be done
	case own != nil:
		return own, nil
	case l.dead && r.noServerLeft(l.name):
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
