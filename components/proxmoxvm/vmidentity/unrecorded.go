package vmidentity

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/wait"
)

// checkUnrecorded refuses to delete the VM of a node that has joined the cluster, where the state does not have that it
// has: the run that set it up was cut off. The hooks that take a node out of etcd and Kubernetes are those of what the
// state has.
func (i *Identities) checkUnrecorded(ctx context.Context, f Found) error {
	_, _, planned := NodeByVMID(i.plan, f.VM.ID)
	if i.Joined == nil || planned || slices.Contains(i.plan.ForceRemove, f.VM.Name) {
		return nil
	}

	i.readOnce()

	if !i.unrecorded(f.VM.ID) {
		return nil
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
	i.readOnce()

	if i.unread != nil || i.plan.Teardown {
		return nil
	}

	vms, err := i.VMs(i.ctx.Context())
	if err != nil {
		return fmt.Errorf("could not determine which VMs have the tags of the cluster: %w", err)
	}

	for _, v := range vms {
		if _, _, planned := NodeByVMID(i.plan, v.ID); planned || i.inState(v.ID) || v.Template || v.Container {
			continue
		}

		// Only of the host is it known whether it answers.
		if now, there, err := i.proxmox.Find(i.ctx.Context(), v.ID); err != nil || !there || now.Unreachable {
			continue
		}

		if err := i.ctx.Log.Warn(fmt.Sprintf("VM %d (%s) on host %s has the tags of this cluster, and is neither in the "+
			"configuration nor in the state: an interrupted run created it, or it is a copy. It is left alone. If it is not "+
			"needed, delete its node ('kubectl delete node', if there is one) and the VM ('qm stop %d', 'qm destroy %d "+
			"--purge' on host %s)", v.ID, v.Label(), v.Host, v.ID, v.ID, v.Host), nil); err != nil {
			return err
		}
	}

	return nil
}

// inState says that the state has a VM with a VMID.
func (i *Identities) inState(vmid int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()

	for _, m := range i.state {
		if m.VMID == vmid {
			return true
		}
	}

	return false
}

// unrecorded says that the state has a VM and not that its node was set up, while it has that of others: there is a
// cluster that it may have joined.
func (i *Identities) unrecorded(vmid int) bool {
	i.mu.Lock()
	defer i.mu.Unlock()

	known, cluster := false, false

	for _, m := range i.state {
		cluster = cluster || m.setUp
		known = known || m.VMID == vmid && !m.setUp
	}

	return known && cluster
}
