package vmidentity

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/wait"
)

// checkUnrecorded refuses to delete the VM of a node that has joined the cluster, where the state does not have that it
// has: the run that set it up was cut off. The hooks that take a node out of etcd and Kubernetes are those of what the
// state has.
func (i *Identities) checkUnrecorded(ctx context.Context, f Found) error {
	_, _, planned := NodeByVMID(i.plan, f.VM.ID)
	if i.Joined == nil || planned {
		return nil
	}

	i.readOnce()

	if !i.unrecorded(f.VM.ID) {
		return nil
	}

	if i.plan.DeclaredDead(f.VM.Name) {
		return i.ctx.Log.Warn(deadNode(f.VM.Label(),
			"does not have whether its node has joined the cluster", f.VM.Name), nil)
	}

	if i.ctx.DryRun() {
		short, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
		defer cancel()

		ctx = short
	}

	node, err := i.Joined(ctx, f.Config.UUID)

	switch {
	case err != nil && i.ctx.DryRun():
		return nil
	case err != nil:
		return fmt.Errorf("%s is not deleted: could not determine whether it has joined the cluster, because the run that "+
			"created it was interrupted: %w; run 'pulumi up' again, or, if the node is dead, name it in lifecycle.forceRemove",
			f.VM.Label(), err)
	case node != "":
		return fmt.Errorf("%s is not deleted: its node %s has joined the cluster, and the run that created it was "+
			"interrupted before the state had that, so nothing would take it out of the cluster first. Put the node back, "+
			"run 'pulumi up', then remove it", f.VM.Label(), node)
	default:
		return nil
	}
}

// WarnUnrecorded warns of VMs with the tags of the cluster that neither the plan nor the state has: an interrupted run
// may have created them, and no run deletes them.
func (i *Identities) WarnUnrecorded() error {
	if i.plan.Teardown {
		return nil
	}

	i.readOnce()

	if i.unread != nil {
		return nil
	}

	vms, err := i.unplannedVMs(i.ctx.Context())
	if err != nil {
		return i.ctx.Log.Warn(fmt.Sprintf("could not determine which VMs have the tags of the cluster: %v", err), nil)
	}

	for _, v := range vms {
		if i.inState(v.ID) {
			continue
		}

		// Only of the host is it known whether it answers.
		if now, there, err := i.proxmox.Find(i.ctx.Context(), v.ID); err != nil || !there || now.Unreachable {
			continue
		}

		if err := i.ctx.Log.Warn(i.unrecordedVM(v), nil); err != nil {
			return err
		}
	}

	return nil
}

// unrecordedVM is what to say of a VM that neither the plan nor the state has.
func (i *Identities) unrecordedVM(v proxmoxapi.VM) string {
	what := fmt.Sprintf("VM %d (%s) on host %s has the tags of this cluster, and is neither in the configuration nor in "+
		"the state: ", v.ID, v.Label(), v.Host)

	if slices.ContainsFunc(i.plan.Nodes(), func(n plan.Node) bool { return n.Name == v.Name }) {
		return what + "it is a copy of the VM of " + v.Name + ", and must not run while that VM does. It is left alone: " +
			"delete it if it is not needed, or take the tags off it"
	}

	return what + fmt.Sprintf("an interrupted run created it, or it is a copy. It is left alone. If Kubernetes lists its "+
		"node, put the node back into the configuration, run 'go run ./stacks/ops import', 'pulumi up', then remove it. If "+
		"it does not, delete the VM ('qm stop %d', 'qm destroy %d --purge' on host %s)", v.ID, v.ID, v.Host)
}

// inState says that the state has a VM with a VMID.
func (i *Identities) inState(vmid int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()

	_, there := i.byVMID(vmid)

	return there
}

// unrecorded says that the state has a VM and not that its node was set up, while it has that of others: there is a
// cluster that it may have joined.
func (i *Identities) unrecorded(vmid int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()

	m, known := i.byVMID(vmid)
	if !known || m.setUp {
		return false
	}

	for _, other := range i.state {
		if other.setUp {
			return true
		}
	}

	return false
}
