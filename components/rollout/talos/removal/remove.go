package removal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
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

	if n := l.planned; n != nil {
		switch {
		case r.Inventory.AbsentVMIDs()[n.VMID]:
			return r.bootstrap.CheckDataKept(ctx, l.Name, l.role, l.credentials)
		case r.readdressed(ctx, l):
			return nil
		case !slices.Contains(r.Plan.Replace, n.Name):
			return r.refuseReplacement(ctx, l)
		}
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	kept := vmidentity.FindUnreachable(ctx, r.Proxmox, r.Plan, l.Name)
	if kept != nil && (!l.forced || r.recoversFromSnapshot(l)) {
		return kept.BlocksRemoval()
	}

	if r.recoversFromSnapshot(l) {
		return r.abandonQuorum(ctx, l)
	}

	if r.DryRun {
		if kept != nil {
			r.Warn(kept.PreviewRemoval())
		}

		return r.preview(ctx, l)
	}

	err = rollout.Removals(r.Plan, r.Limiter, r.Progress).Disrupt(ctx, plan.Node{Name: l.Name, Role: l.role},
		&nodeRemoval{Removals: r, leavingNode: l}, l.Name+" is not removed")
	if err == nil && kept != nil {
		// What is left to do concerns no other node.
		return kept.LeftBehind()
	}

	return err
}

// preview evaluates the removal of a control plane in a preview.
func (r *Removals) preview(ctx context.Context, l leavingNode) error {
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

// nodeRemoval takes a node out of the cluster: its pods, its vote, its Node, its identity.
type nodeRemoval struct {
	*Removals
	leavingNode

	// members of etcd, as they were when the cluster was checked; none: it is a worker.
	members []etcd.Member
	// dead is why the node does not answer.
	dead error
	kube *kubeapi.Client
}

// Evaluate finds out whether the node may leave, and whether it can.
func (n *nodeRemoval) Evaluate(ctx context.Context) (rollout.Change, error) {
	if err := n.CheckDisruption(ctx, impact.EffectRemove); err != nil {
		return rollout.Change{}, err
	}

	kube, err := n.Kubernetes(ctx)
	if err != nil {
		return rollout.Change{}, err
	}

	n.dead = n.unreachable(ctx)
	if n.dead == nil || n.forced {
		return rollout.Change{
			Effect: impact.EffectRemove, Drain: n.drain, Acts: []rollout.Act{{Effect: impact.EffectRemove, Do: n.leave}},
		}, nil
	}

	if _, there, err := kube.Node(ctx, n.Name); err == nil && !there && n.memberIndex(n.members) < 0 {
		// It had left when a run was cut off.
		return rollout.Change{NotJoined: true}, nil
	}

	return rollout.Change{}, spec.Blocked(
		fmt.Sprintf("it does not answer at %s (%v)", n.Address, n.dead),
		"bring it back, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
	)
}

// CheckDisruption waits until etcd can do without a control plane for good. That the node runs in the VM that the state
// has is looked at last, right before anything is done to it: a newer copy of the state may have replaced both.
func (n *nodeRemoval) CheckDisruption(ctx context.Context, _ impact.Effect) (err error) {
	if n.role == spec.RoleControlPlane {
		n.members, err = n.waitMayLeave(ctx, n.leavingNode)
	}

	if err != nil {
		return err
	}

	n.UUID, err = n.Identities.CheckLeaving(ctx, n.vm)
	if errors.Is(err, vmidentity.ErrUnknown) {
		return n.continueIfForced(ctx, err,
			"it is removed anyway, and nothing is sent to its address")
	}

	return err
}

// Backup keeps etcd, unless there is none.
func (n *nodeRemoval) Backup(ctx context.Context) error {
	if len(n.members) == 0 {
		return nil
	}

	return n.BackupEtcd(ctx, n.Peers(n.Target, n.role), n.credentials)
}

// Kubernetes is that of the other control planes. The names in their certificates change with the number of control
// planes, for which their API servers restart, all at about the same time.
func (n *nodeRemoval) Kubernetes(ctx context.Context) (_ *kubeapi.Client, err error) {
	if n.kube == nil {
		n.kube, err = rollout.WaitKubernetes(ctx, n.Plan, n.Progress, func(ctx context.Context) (*kubeapi.Client, error) {
			return n.RetryingKubernetes(ctx, cluster.Without(n.Peers(n.Target, n.role), n.Target), n.credentials)
		})
	}

	return n.kube, err
}

// WaitRejoined is not asked: the node is gone.
func (*nodeRemoval) WaitRejoined(context.Context) error { return nil }

// leave takes the node out of etcd, of Kubernetes, and of its own memory.
func (n *nodeRemoval) leave(ctx context.Context) error {
	if joined := n.memberIndex(n.members); joined >= 0 {
		if err := n.removeEtcdMember(ctx, n.members[joined]); err != nil {
			return errors.Join(err, n.kube.Uncordon(context.WithoutCancel(ctx), n.Name))
		}
	}

	if err := n.kube.DeleteNode(ctx, n.Name); err != nil {
		return fmt.Errorf("could not delete its node from Kubernetes: %w", err)
	}

	if n.planned != nil {
		n.Limiter.Replace(n.Name, n.role, func(ctx context.Context) error { return n.checkRejoined(ctx, n.leavingNode) })
	}

	return n.reset(ctx)
}

// continueIfForced is what becomes of a step of a removal that has failed. A node that is named in
// lifecycle.forceRemove is removed nevertheless, by the next stronger step, and that is said; of any other, the error
// says that there is this way.
func (n *nodeRemoval) continueIfForced(ctx context.Context, failed error, stronger string) error {
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return failed
	case !n.forced:
		return rollout.SuggestForce(failed)
	default:
		n.Warn(fmt.Sprintf("%s: %v: %s, because it is named in lifecycle.forceRemove", n.Name, failed, stronger))

		return nil
	}
}

// drain takes the pods off the node. Those of a dead one are lost with it, as are those that do not leave one that is
// named in lifecycle.forceRemove.
func (n *nodeRemoval) drain(ctx context.Context, d rollout.Drain) error {
	if !n.forced {
		return n.continueIfForced(ctx, d.Run(ctx), "")
	}

	if err := n.continueIfForced(ctx, d.Cordon(ctx), "it is removed without this step"); err != nil || n.dead != nil {
		return err
	}

	return n.continueIfForced(ctx, d.Evict(ctx), "its pods are not evicted")
}

// unreachable is why the node does not answer, nil when it does. One that is said to be dead is asked once.
func (n *nodeRemoval) unreachable(ctx context.Context) error {
	if n.forced {
		return talosapi.Answers(ctx, n.Target, n.credentials)
	}

	return n.WhyUnreachable(ctx, n.Target, n.credentials)
}

// removeEtcdMember takes the node's member out of etcd, and looks whether it is gone: a reply may have been lost. A
// member that cannot leave by itself is removed by another.
func (n *nodeRemoval) removeEtcdMember(ctx context.Context, m etcd.Member) error {
	n.Progress(n.Name + " leaves etcd")

	others := cluster.Without(n.Peers(n.Target, n.role), n.Target)
	left := n.dead

	if n.dead == nil {
		ctx, cancel := context.WithTimeout(ctx, n.Plan.NodeTimeout)
		left = talosapi.LeaveEtcd(ctx, n.Target, n.credentials)

		cancel()
	}

	if left != nil && n.forced {
		if n.dead == nil {
			n.Warn(fmt.Sprintf(
				"%v: another control plane removes its member, because it is named in lifecycle.forceRemove", left))
		}

		for _, t := range others {
			if left = talosapi.RemoveEtcdMember(ctx, t, n.credentials, m); left == nil {
				break
			}
		}
	}

	err := wait.Until(ctx, n.Plan.SettleTimeout, n.Progress, func(context.Context) error {
		members, listed := talosapi.EtcdMembers(ctx, others, n.credentials)

		switch {
		case listed != nil:
			return wait.For("etcd without %s (%v)", n.Name, listed)
		case !slices.ContainsFunc(members, func(now etcd.Member) bool { return now.ID == m.ID }):
			return nil
		case left != nil:
			return left
		default:
			return wait.For("etcd to remove the member of %s", n.Name)
		}
	})

	switch {
	case err == nil:
		if err := talosapi.EndAlarms(ctx, others, n.credentials, m); err != nil {
			n.Warn(err.Error())
		}

		return nil
	case n.forced:
		return err // nothing is stronger
	default:
		return n.continueIfForced(ctx, err, "")
	}
}

// reset makes the node forget the cluster. Its VM goes next, so it is not waited for.
func (n *nodeRemoval) reset(ctx context.Context) error {
	if n.dead != nil {
		return nil
	}

	err := wait.Until(ctx, n.Plan.SettleTimeout, n.Progress, func(ctx context.Context) error {
		err := talosapi.Reset(ctx, n.Target, n.credentials)
		if err == nil || talosapi.Answers(ctx, n.Target, n.credentials) != nil {
			// When it does not answer any more, the reply was lost, not the request.
			return nil
		}

		return wait.For("%s to reset (%v)", n.Name, err)
	})

	return n.continueIfForced(ctx, err, "its VM is deleted as it is")
}
