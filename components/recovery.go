package components

import (
	"context"
	"slices"

	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// recovers says whether the node goes because etcd is lost: there is a snapshot to begin with, and the operator has named all
// control planes that have a machine.
func (r *removal) recovers(l leaver) bool {
	return r.plan.RecoverFrom != "" && l.planned != nil && l.role == plan.ControlPlane &&
		!slices.ContainsFunc(r.plan.ControlPlanes(), func(n plan.Node) bool { return !r.absent[n.VMID] && !slices.Contains(r.plan.Replace, n.Name) })
}

// giveUp lets a control plane go whose etcd has lost its quorum: there is nobody to ask, and nothing to be kept in order. With
// a quorum, nothing needs to be recovered.
func (r *removal) giveUp(ctx context.Context, l leaver) error {
	refused := lifecycle.Refusal{
		Rule:   l.Name + " is not removed: etcd has its quorum, and nothing needs to be recovered",
		Remedy: "take out cluster.recoverFrom, and name one control plane at a time in lifecycle.replace",
	}

	quorate := func() bool {
		members, err := talosapi.EtcdMembers(ctx, r.controlPlanes(l), l.credentials)
		if err != nil {
			return false
		}

		return lifecycle.Departure{Members: members}.Quorate()
	}

	if r.ctx.DryRun() {
		if quorate() {
			return refused
		}

		return nil
	}

	// An election is no loss.
	err := wait.Until(ctx, settle, r.say, func(context.Context) (string, error) {
		if quorate() {
			return "", refused
		}

		return "etcd, whether it has lost its quorum for good", nil
	})
	if err == refused { //nolint:errorlint // it is not wrapped
		return err
	}

	r.say(l.Name + " goes: etcd has lost its quorum")

	return nil
}
