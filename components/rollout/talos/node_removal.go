package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

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

	n.dead = n.unreachable(ctx, n.leavingNode)
	if n.dead == nil || n.forced {
		return rollout.Change{
			Effect: impact.EffectRemove, Drain: n.drain, Acts: []rollout.Act{{Effect: impact.EffectRemove, Do: n.leave}},
		}, nil
	}

	if _, there, err := kube.Node(ctx, n.Name); err == nil && !there && n.in(n.members) < 0 {
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
		n.members, err = n.evaluate(ctx, n.leavingNode)
	}

	if err != nil {
		return err
	}

	n.UUID, err = n.Identities.CheckLeaving(ctx, n.vm)
	if errors.Is(err, vmidentity.ErrUnknown) {
		return n.otherwise(ctx, n.leavingNode, err, "it is removed all the same, and what answers at its address is asked "+
			"for nothing")
	}

	return err
}

// Backup keeps etcd, unless there is none.
func (n *nodeRemoval) Backup(ctx context.Context) error {
	if len(n.members) == 0 {
		return nil
	}

	return n.BackupEtcd(ctx, n.Peers(n.Target, n.role), n.leavingNode.credentials)
}

// Kubernetes is that of the other control planes. The names in their certificates change with the number of control
// planes, for which their API servers restart, all at about the same time.
func (n *nodeRemoval) Kubernetes(ctx context.Context) (_ *kubeapi.Client, err error) {
	if n.kube == nil {
		n.kube, err = rollout.WaitKubernetes(ctx, n.Plan, n.Progress, func(ctx context.Context) (*kubeapi.Client, error) {
			return n.RetryingKubernetes(ctx, cluster.Without(n.Peers(n.Target, n.role), n.Target), n.leavingNode.credentials)
		})
	}

	return n.kube, err
}

// WaitRejoined is not asked: the node is gone.
func (*nodeRemoval) WaitRejoined(context.Context) error { return nil }

// leave takes the node out of etcd, of Kubernetes, and of its own memory.
func (n *nodeRemoval) leave(ctx context.Context) error {
	l := n.leavingNode

	if joined := l.in(n.members); joined >= 0 {
		if err := n.removeEtcdMember(ctx, l, n.members[joined], n.dead); err != nil {
			return errors.Join(err, n.kube.Uncordon(context.WithoutCancel(ctx), l.Name))
		}
	}

	if err := n.kube.DeleteNode(ctx, l.Name); err != nil {
		return fmt.Errorf("Kubernetes does not forget its node: %w", err)
	}

	if l.planned != nil {
		n.Limiter.Replace(l.Name, l.role, func(ctx context.Context) error { return n.missing(ctx, l) })
	}

	return n.reset(ctx, l, n.dead)
}

// otherwise is what becomes of a step of a removal that has failed. A node that is named in lifecycle.forceRemove is
// removed nevertheless, by the next stronger step, and that is said; of any other, the error says that there is this
// way.
func (r *Removals) otherwise(ctx context.Context, l leavingNode, failed error, stronger string) error {
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return failed
	case !l.forced:
		return rollout.SuggestForce(failed)
	default:
		r.Warn(fmt.Sprintf("%s: %v: %s, for it is named in lifecycle.forceRemove", l.Name, failed, stronger))

		return nil
	}
}

// drain takes the pods off the node. Those of a dead one are lost with it, as are those that do not leave one that is
// named in lifecycle.forceRemove.
func (n *nodeRemoval) drain(ctx context.Context, d rollout.Drain) error {
	l := n.leavingNode
	if !l.forced {
		return n.otherwise(ctx, l, d.Run(ctx), "")
	}

	if err := n.otherwise(ctx, l, d.Cordon(ctx), "it is removed without"); err != nil || n.dead != nil {
		return err
	}

	return n.otherwise(ctx, l, d.Evict(ctx), "its pods are given up")
}

// evaluate waits for control planes that are on their way into etcd, and then says whether this one may leave.
func (r *Removals) evaluate(ctx context.Context, l leavingNode) (members []etcd.Member, err error) {
	err = rollout.WaitRemovable(ctx, r.Plan, r.Progress, func() (_ etcd.MemberRemoval, joining string, err error) {
		members, err = talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)

		return r.nodeRemoval(l, members), r.joining(l, members), err
	})

	return members, err
}

// joining are planned control planes without a vote yet, other than the one that leaves. One that is known to be dead
// does not come.
func (r *Removals) joining(l leavingNode, members []etcd.Member) string {
	var names []string

	for _, n := range r.Plan.ControlPlanes() {
		if n.Name == l.Name || slices.Contains(r.Plan.ForceRemove, n.Name) {
			continue
		}

		if !slices.ContainsFunc(members, func(m etcd.Member) bool { return r.is(m, n) && !m.Learner }) {
			names = append(names, n.Name)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return strings.Join(names, ", ") + " to get a vote in etcd"
}

// missing is what a node that is replaced lacks.
func (r *Removals) missing(ctx context.Context, l leavingNode) error {
	kube, err := cluster.Kubernetes(ctx, cluster.Without(r.Peers(l.Target, l.role), l.Target), l.credentials)
	if err != nil {
		return wait.For("%v", err)
	}

	n, there, err := kube.Node(ctx, l.Name)
	if err != nil || !there || !n.Ready {
		return wait.For("%s to be ready in Kubernetes", l.Name)
	}

	if l.role != spec.RoleControlPlane {
		return nil
	}

	members, err := talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)
	if err != nil {
		return wait.For("etcd to answer")
	}

	if !slices.ContainsFunc(members, func(m etcd.Member) bool {
		return m.Name == l.Name && !m.Learner && m.Problem == ""
	}) {
		return wait.For("%s to be back in etcd", l.Name)
	}

	return nil
}

// unreachable is why the node does not answer, nil when it does. One that is said to be dead is asked once.
func (r *Removals) unreachable(ctx context.Context, l leavingNode) error {
	if l.forced {
		return talosapi.Answers(ctx, l.Target, l.credentials)
	}

	return r.WhyUnreachable(ctx, l.Target, l.credentials)
}

// removeEtcdMember takes the node's member out of etcd, and looks whether it is gone: a reply may have been lost. A
// member that cannot leave by itself is removed by another.
func (r *Removals) removeEtcdMember(ctx context.Context, l leavingNode, m etcd.Member, dead error) error {
	r.Progress(l.Name + " leaves etcd")

	others := cluster.Without(r.Peers(l.Target, l.role), l.Target)
	left := dead

	if dead == nil {
		ctx, cancel := context.WithTimeout(ctx, r.Plan.NodeTimeout)
		left = talosapi.LeaveEtcd(ctx, l.Target, l.credentials)

		cancel()
	}

	if left != nil && l.forced {
		if dead == nil {
			r.Warn(fmt.Sprintf(
				"%v: another control plane removes its member, for it is named in lifecycle.forceRemove", left))
		}

		for _, t := range others {
			if left = talosapi.RemoveEtcdMember(ctx, t, l.credentials, m); left == nil {
				break
			}
		}
	}

	err := wait.Until(ctx, r.Plan.SettleTimeout, r.Progress, func(context.Context) error {
		members, listed := talosapi.EtcdMembers(ctx, others, l.credentials)

		switch {
		case listed != nil:
			return wait.For("etcd without %s (%v)", l.Name, listed)
		case !slices.ContainsFunc(members, func(now etcd.Member) bool { return now.ID == m.ID }):
			return nil
		case left != nil:
			return left
		default:
			return wait.For("etcd to let %s go", l.Name)
		}
	})

	switch {
	case err == nil:
		if err := talosapi.EndAlarms(ctx, others, l.credentials, m); err != nil {
			r.Warn(err.Error())
		}

		return nil
	case l.forced:
		return err // nothing is stronger
	default:
		return r.otherwise(ctx, l, err, "")
	}
}

// reset makes the node forget the cluster. Its VM goes next, so it is not waited for.
func (r *Removals) reset(ctx context.Context, l leavingNode, dead error) error {
	if dead != nil {
		return nil
	}

	err := wait.Until(ctx, r.Plan.SettleTimeout, r.Progress, func(ctx context.Context) error {
		err := talosapi.Reset(ctx, l.Target, l.credentials)
		if err == nil || talosapi.Answers(ctx, l.Target, l.credentials) != nil {
			// When it does not answer any more, the reply was lost, not the request.
			return nil
		}

		return wait.For("%s to reset (%v)", l.Name, err)
	})

	return r.otherwise(ctx, l, err, "its VM is deleted as it is")
}
