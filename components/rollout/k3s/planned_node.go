package k3s

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// plannedNode is the node of the plan whose membership a resource is; nil: the plan has it no more. A membership of the
// first server says that the cluster has existed before this run.
func (r *Removals) plannedNode(resource string) *plan.Node {
	n, there := r.Nodes[resource]
	if !there {
		return nil
	}

	if n.Name == r.Plan.ControlPlanes()[0].Name {
		r.clusterExisted.Store(true)
	}

	return &n
}

// removePlanned decides on a node that the plan still has, and finds out whether its machine is gone. done: the node is
// not taken out of the cluster; its membership is deleted alone, or err refuses that.
func (r *Removals) removePlanned(ctx context.Context, l *leavingNode) (done bool, err error) {
	gone, err := r.machineGone(ctx, *l)
	if errors.Is(err, vmidentity.ErrOtherVM) && r.mayReplaceOther(*l) {
		err = nil
	}

	switch {
	case errors.Is(err, proxmoxapi.ErrHostUnreachable) && r.Plan.Replaces(l.name):
		// FindUnreachable says what can be done there.
	case errors.Is(err, vmidentity.ErrOtherVM):
		return true, err
	case err != nil:
		return true, fmt.Errorf("%s: could not determine whether its machine is the one that joined: %w", l.name, err)
	case !gone && !r.Plan.Replaces(l.name):
		if !r.DryRun {
			r.Limiter.Fail(l.name)
		}

		return true, rollout.RefuseRemoval(l.name)
	case gone && l.planned.Role == spec.RoleWorker:
		return true, nil
	}

	l.gone = gone

	return false, nil
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
