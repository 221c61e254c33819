package removal

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// Remove runs before the configuration of a node is deleted. Its error leaves the node as it is.
func (r *Removals) Remove(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)

	// Where the whole cluster goes, there is nothing for the node to leave.
	if _, planned := r.Nodes[args.Name]; r.Plan.Teardown && (planned || r.Destroying) {
		return nil
	}

	l, err := r.readLeavingNode(ctx, args)
	if err != nil {
		return err
	}

	if l.planned != nil {
		if done, err := r.removePlanned(ctx, l); done {
			return err
		}
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	kept := vmidentity.FindUnreachable(ctx, r.Proxmox, r.Plan, l.Name)

	switch recovers := r.recoversFromSnapshot(l); {
	case recovers && kept != nil:
		return kept.BlocksRecovery()
	case recovers:
		return r.abandonQuorum(ctx, l)
	case kept != nil && !l.forced:
		return kept.BlocksRemoval()
	}

	if r.DryRun {
		if kept != nil {
			r.Warn(kept.PreviewRemoval())
		}

		return r.previewRemoval(ctx, l)
	}

	err = rollout.Removals(r.Plan, r.Limiter, r.Progress).Disrupt(ctx, plan.Node{Name: l.Name, Role: l.role},
		&nodeRemoval{Removals: r, leavingNode: l, vmStays: kept != nil}, l.Name+" is not removed")
	if err == nil && kept != nil {
		// What is left to do concerns no other node.
		return kept.LeftBehind()
	}

	return err
}

// previewRemoval evaluates the removal of a control plane in a preview.
func (r *Removals) previewRemoval(ctx context.Context, l leavingNode) error {
	if l.role != spec.RoleControlPlane {
		return nil
	}

	members, err := talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)
	if err != nil {
		r.Warn(fmt.Sprintf("could not determine whether %s may leave the cluster: %v", l.Name, err))

		return nil
	}

	// Those that are to come are there when it leaves.
	for _, n := range r.Plan.ControlPlanes() {
		if !slices.ContainsFunc(members, func(m etcd.Member) bool { return r.isMember(m, n) }) {
			members = append(members, etcd.Member{Name: n.Name})
		}
	}

	return rollout.PreviewRemoval(l.Name, r.memberRemoval(l, members), r.Warn)
}
