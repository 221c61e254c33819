package talos

import (
	"context"
	"errors"
	"slices"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// recoversFromSnapshot says whether the node goes because etcd is lost: there is a snapshot to begin with, and the
// operator has named all control planes that have a machine.
func (r *Removals) recoversFromSnapshot(l leavingNode) bool {
	return r.Plan.RecoverFrom != "" && l.planned != nil && l.role == spec.RoleControlPlane &&
		!slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool {
			return !r.Inventory.AbsentVMIDs()[n.VMID] && !slices.Contains(r.Plan.Replace, n.Name)
		})
}

// abandonQuorum lets a control plane go whose etcd has lost its quorum: no member can be asked, and no quorum be kept.
// With a quorum, nothing needs to be recovered.
func (r *Removals) abandonQuorum(ctx context.Context, l leavingNode) error {
	blocked := spec.Blocked(
		l.Name+" is not removed: etcd has its quorum, and nothing needs to be recovered",
		"take out cluster.recoverFrom, and name one control plane at a time in lifecycle.replace",
	)

	quorate := func() bool {
		members, err := talosapi.EtcdMembers(ctx, r.peers(l.Target, l.role), l.credentials)
		if err != nil {
			return false
		}

		return etcd.MemberRemoval{Members: members}.HasQuorum()
	}

	if r.DryRun {
		if quorate() {
			return blocked
		}

		return nil
	}

	// An election is no loss.
	err := wait.Until(ctx, r.Plan.SettleTimeout, r.Progress, func(context.Context) error {
		if quorate() {
			return blocked
		}

		return wait.For("etcd, whether it has lost its quorum for good")
	})
	if errors.Is(err, blocked) {
		return err
	}

	r.Progress(l.Name + " goes: etcd has lost its quorum")

	return nil
}
