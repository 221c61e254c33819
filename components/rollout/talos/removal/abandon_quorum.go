package removal

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

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
	return r.Plan.RecoverFrom != "" && l.planned != nil && l.role == spec.RoleControlPlane &&
		!slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool {
			return !r.Inventory.AbsentVMIDs()[n.VMID] && !r.Plan.Replaces(n.Name)
		})
}
