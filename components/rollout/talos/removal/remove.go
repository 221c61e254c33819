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

	if l.planned != nil {
		if done, err := r.removePlanned(ctx, l); done {
			return err
		}
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	unreachableVM := vmidentity.FindUnreachable(ctx, r.Proxmox, r.Plan, l.Name)

	switch recovers := l.planned != nil && r.recoversFromSnapshot(l); {
	case recovers && unreachableVM != nil:
		return unreachableVM.BlocksRecovery()
	case recovers:
		return r.abandonQuorum(ctx, l)
	case unreachableVM != nil && !l.forced:
		return unreachableVM.BlocksRemoval()
	}

	if r.DryRun {
		if unreachableVM != nil {
			r.Warn(unreachableVM.PreviewRemoval())
		}

		return r.previewRemoval(ctx, l)
	}

	err = rollout.NewRemoval(r.Plan, r.Limiter, r.Progress).Disrupt(ctx, plan.Node{Name: l.Name, Role: l.role},
		&nodeRemoval{Removals: r, leavingNode: l, vmStays: unreachableVM != nil}, l.Name+" is not removed")
	if err == nil && unreachableVM != nil {
		// What is left to do concerns no other node.
		return unreachableVM.LeftBehind()
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

// nodeRemoval takes a node out of the cluster: its pods, its vote, its Node, its identity.
type nodeRemoval struct {
	*Removals
	leavingNode

	// members of etcd, as they were when the cluster was checked; none: it is a worker.
	members []etcd.Member
	// whyUnreachable is why the node does not answer.
	whyUnreachable error
	kube           *kubeapi.Client
	// vmStays says that its VM cannot be deleted in this run, because its host does not answer: no new one takes its
	// place.
	vmStays bool
}

// Evaluate finds out whether the node may leave, and whether it can.
func (n *nodeRemoval) Evaluate(ctx context.Context) (rollout.Work, error) {
	if err := n.WaitDisruptable(ctx, impact.EffectRemove); err != nil {
		return rollout.Work{}, err
	}

	kube, err := n.Kubernetes(ctx)
	if err != nil {
		return rollout.Work{}, err
	}

	n.whyUnreachable = n.checkReachable(ctx)
	if n.whyUnreachable == nil || n.forced {
		return rollout.Work{
			Effect: impact.EffectRemove, Drain: n.drain,
			DisruptiveSteps: []rollout.DisruptiveStep{{Effect: impact.EffectRemove, Do: n.leave}},
		}, nil
	}

	if _, there, err := kube.Node(ctx, n.Name); err == nil && !there && n.memberIndexIn(n.members) < 0 {
		// An interrupted run has already removed it.
		n.addReplaced()

		return rollout.Work{NotInCluster: true}, nil
	}

	return rollout.Work{}, spec.Blocked(
		fmt.Sprintf("it does not answer at %s (%v)", n.Address, n.whyUnreachable),
		"start it again, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
	)
}

// WaitDisruptable waits until etcd can do without a control plane for good, and then verifies the VM of the node.
func (n *nodeRemoval) WaitDisruptable(ctx context.Context, _ impact.Effect) (err error) {
	if n.role == spec.RoleControlPlane {
		n.members, err = n.waitRemovable(ctx, n.leavingNode)
	}

	if err != nil {
		return err
	}

	return n.verifyVM(ctx)
}

// verifyVM checks that the node runs in the VM that the state has. That is looked at last, right before anything is
// done to it: a newer copy of the state may have replaced both.
func (n *nodeRemoval) verifyVM(ctx context.Context) (err error) {
	n.UUID, err = n.Identities.CheckDeletion(ctx, n.vmResource)
	if errors.Is(err, vmidentity.ErrUnknown) {
		err = n.tolerateIfForced(ctx, n.leavingNode, err,
			"it is removed anyway, and nothing is sent to its address")
	}

	if err != nil {
		return err
	}

	kube, err := n.Kubernetes(ctx)
	if err != nil {
		return err
	}

	node, _, err := kube.Node(ctx, n.Name)
	if err != nil {
		// What Kubernetes has now is compared when it is deleted.
		return nil //nolint:nilerr // its VM is the one of the state
	}

	return n.checkNode(ctx)(node)
}

// checkNode compares the machine of a Node with that of the state. A Node that is not ready may be left of a machine
// that was recreated.
func (n *nodeRemoval) checkNode(ctx context.Context) func(kubeapi.Node) error {
	return func(node kubeapi.Node) error {
		err := rollout.CheckNode(node, n.Identities.StateUUID(ctx, n.vmResource))
		if errors.Is(err, vmidentity.ErrUnknown) {
			return nil
		}

		return err
	}
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
	var left []string

	if index := n.memberIndexIn(n.members); index >= 0 {
		if err := n.removeEtcdMember(ctx, n.leavingNode, n.members[index], n.whyUnreachable); err != nil {
			return errors.Join(err, n.kube.Uncordon(context.WithoutCancel(ctx), n.Name))
		}

		left = append(left, "etcd")
	}

	if err := n.kube.DeleteNode(ctx, n.Name, n.checkNode(ctx)); err != nil {
		err = fmt.Errorf("could not delete its node from Kubernetes: %w", err)

		return rollout.ExplainPartialRemoval(err, n.planned != nil, left...)
	}

	n.addReplaced()

	return rollout.ExplainPartialRemoval(n.reset(ctx), n.planned != nil, append(left, "Kubernetes")...)
}

// addReplaced notes that a node that stays in the plan is unavailable until its new machine has rejoined, where this
// run makes one.
func (n *nodeRemoval) addReplaced() {
	if n.planned == nil || n.vmStays {
		return
	}

	n.Limiter.AddReplaced(n.Name, n.role, func(ctx context.Context) error {
		return n.checkRejoined(ctx, n.leavingNode)
	})
}

// drain cordons and drains the node. The pods of a dead one are lost with it, as are those that do not leave one that
// is named in lifecycle.forceRemove.
func (n *nodeRemoval) drain(ctx context.Context, d rollout.Drain) error {
	if !n.forced {
		return n.tolerateIfForced(ctx, n.leavingNode, d.Run(ctx), "")
	}

	err := n.tolerateIfForced(ctx, n.leavingNode, d.Cordon(ctx), "it is removed without this step")
	if err != nil || n.whyUnreachable != nil {
		return err
	}

	return n.tolerateIfForced(ctx, n.leavingNode, d.Evict(ctx), "its pods are not evicted")
}

// checkReachable is why the node does not answer, nil when it does. One that is said to be dead is asked once.
func (n *nodeRemoval) checkReachable(ctx context.Context) error {
	if n.forced {
		return talosapi.Answers(ctx, n.Target, n.credentials)
	}

	return n.WhyUnreachable(ctx, n.Target, n.credentials)
}

// reset makes the node forget the cluster. Its VM goes next, so it is not waited for.
func (n *nodeRemoval) reset(ctx context.Context) error {
	if n.whyUnreachable != nil {
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

	return n.tolerateIfForced(ctx, n.leavingNode, err, "its VM is deleted as it is")
}

// checkRejoined says what a node that was replaced still lacks.
func (r *Removals) checkRejoined(ctx context.Context, l leavingNode) error {
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
