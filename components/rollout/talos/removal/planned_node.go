package removal

import (
	"context"

	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// removePlanned decides on a node that the plan still has. It is done where the node is not to be taken out of the
// cluster: its configuration goes alone, or, with an error, stays.
func (r *Removals) removePlanned(ctx context.Context, l leavingNode) (done bool, err error) {
	switch {
	case r.Inventory.AbsentVMIDs()[l.planned.VMID]:
		return true, r.bootstrap.CheckDataKept(ctx, l.Name, l.role, l.credentials)
	case r.readdressed(ctx, l):
		return true, nil
	case !r.Plan.Replaces(l.planned.Name):
		return true, r.refuseReplacement(ctx, l)
	default:
		return false, nil
	}
}

// readdressed says that a node whose VM stays has another address now: only what was applied at the old one goes. Of a
// VM that is about to be made again, this run does not know yet what will become of it.
func (r *Removals) readdressed(ctx context.Context, l leavingNode) bool {
	if now := r.Addresses.Get(l.Name); now == "" || now == l.Address {
		return false
	}

	_, registered := r.UUIDs[l.Name].Get(ctx, wait.RequestTimeout)

	return registered
}

// refuseReplacement refuses to take the machine of a node that stays: the cluster is being destroyed, or something else
// wants a new VM. A machine that belongs to no cluster is a new one already, where the program has made it: a refresh
// takes another VM with our VMID, name and tags for ours.
func (r *Removals) refuseReplacement(ctx context.Context, l leavingNode) error {
	blocked := rollout.RefuseRemoval(l.Name)

	otherVM := r.whyNotOurVM(l)

	check := func(ctx context.Context) error {
		switch err := talosapi.Answers(ctx, l.Target, l.credentials); {
		case err == nil:
			return blocked
		case otherVM != nil:
			return otherVM
		case talosapi.Unconfigured(ctx, l.Target):
			return r.bootstrap.CheckDataKept(ctx, l.Name, l.role, l.credentials)
		case r.Limiter.CheckNoneFailed() != nil:
			return r.Limiter.CheckNoneFailed()
		default:
			return wait.For("%s to answer at %s (%v)", l.Name, l.Address, err)
		}
	}

	if r.DryRun {
		if err := check(ctx); !wait.NotYet(err) {
			return err
		}

		return nil
	}

	err := wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, check)
	if err != nil {
		r.Limiter.Fail(l.Name)
	}

	return err
}

// whyNotOurVM is why the VM of a node is not known to be the one that was configured.
func (r *Removals) whyNotOurVM(l leavingNode) error {
	if found, there := r.Inventory.VM(l.planned.VMID); there {
		return vmidentity.CheckSetUp(l.Name, found, vmidentity.OwnerTags(r.Plan))
	}

	return nil
}
