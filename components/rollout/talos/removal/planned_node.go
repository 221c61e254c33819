package removal

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// removePlanned decides on a node that the plan still has. done: the node is not taken out of the cluster; its
// configuration is deleted alone, or err refuses that.
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

// abandonQuorum lets a control plane go whose etcd has lost its quorum: no member can be asked, and no quorum be kept.
// With a quorum, nothing needs to be recovered.
func (r *Removals) abandonQuorum(ctx context.Context, l leavingNode) error {
	if err := r.CheckRecovery(l.credentials); err != nil {
		return fmt.Errorf("%s is not removed: %w", l.Name, err)
	}

	blocked := spec.Blocked(
		l.Name+" is not removed: etcd has its quorum, and nothing needs to be recovered",
		"take out cluster.recoverFrom, and name one control plane at a time in lifecycle.replace",
	)

	address := func(n plan.Node) string {
		if n.Name == l.Name {
			return l.Address
		}

		return r.Addresses.Get(n.Name)
	}

	// An election is no loss.
	var unknown error

	askOnce := func(ctx context.Context) error {
		q := r.AskQuorum(ctx, l.credentials, address)
		if etcd.Led(q.Members) {
			return blocked
		}

		// With the control planes goes what they have on their disks.
		if err := r.CheckNewest(l.credentials); err != nil {
			return fmt.Errorf("%s is not removed: %w", l.Name, err)
		}

		unknown = q.WhyUnknown(l.Name)

		return wait.For("etcd to show whether its quorum is lost permanently")
	}

	if r.DryRun {
		if err := askOnce(ctx); !wait.NotYet(err) {
			return err
		}

		if unknown != nil {
			r.Warn(fmt.Sprintf("could not determine whether %s may be removed: %v", l.Name, unknown))
		}

		return nil
	}

	// One that is not reached may take as long as a question may.
	final := false
	err := wait.Until(ctx, r.Plan.SettleTimeout, r.Progress, func(context.Context) error {
		err := askOnce(ctx)
		final = !wait.NotYet(err)

		return err
	})

	switch {
	case final, ctx.Err() != nil:
		return err
	case unknown != nil && !r.abandoned.Load():
		return fmt.Errorf("%s is not removed: %w", l.Name, unknown)
	}

	r.abandoned.Store(true)
	r.Progress(l.Name + " is removed: etcd has lost its quorum")

	return nil
}

// recoversFromSnapshot says whether the node goes because etcd is lost: there is a snapshot to begin with, and the
// operator has named all control planes that have a machine.
func (r *Removals) recoversFromSnapshot(l leavingNode) bool {
	return r.Plan.RecoverFrom != "" && l.role == spec.RoleControlPlane &&
		!slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool {
			return !r.Inventory.AbsentVMIDs()[n.VMID] && !r.Plan.Replaces(n.Name)
		})
}
