package k3s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// Remove runs before the membership of a node is deleted. Its error leaves the node as it is.
func (r *Removals) Remove(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)

	var inputs resource.PropertyMap
	if joined := hookutil.Unwrap(args.OldInputs["input"]); joined.IsObject() {
		inputs = joined.ObjectValue()
	}

	l := leavingNode{
		name:       hookutil.String(inputs, "name"),
		vmResource: strings.TrimSuffix(args.Name, tokens.JoinedSuffix) + tokens.VMSuffix,
		vmid:       int(hookutil.Number(inputs, "vmid")),
		uuid:       hookutil.String(inputs, "uuid"),
	}

	if l.planned = r.plannedNode(args.Name); l.planned != nil {
		l.name = l.planned.Name
	}

	// Where the whole cluster goes, there is nothing for the node to leave.
	if r.Plan.Teardown && (l.planned != nil || r.Destroying) {
		return nil
	}

	if l.name == "" {
		return fmt.Errorf("the state does not have the name of the node whose membership %s is, so it cannot leave the "+
			"cluster. Take it out by hand ('kubectl drain', then 'kubectl delete node'), then run: pulumi state delete "+
			"--stack %s '%s', and 'pulumi up' again", args.Name, resource.URN(args.URN).Stack(), args.URN)
	}

	if err := r.locate(ctx); err != nil {
		return err
	}

	if l.planned != nil {
		if done, err := r.removePlanned(ctx, &l); done {
			return err
		}
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	unreachableVM := vmidentity.FindUnreachable(ctx, r.Proxmox, r.Plan, l.name)
	if unreachableVM != nil && !r.Plan.DeclaredDead(l.name) {
		return unreachableVM.BlocksRemoval()
	}

	if r.DryRun {
		if unreachableVM != nil {
			r.Warn(unreachableVM.PreviewRemoval())
		}

		return r.previewRemoval(ctx, l)
	}

	err := r.remove(ctx, l)
	if err == nil && unreachableVM != nil {
		// What is left to do concerns no other node.
		return unreachableVM.LeftBehind()
	}

	return err
}

// previewRemoval evaluates the removal in a preview. A cluster that would be lost is an error.
func (r *Removals) previewRemoval(ctx context.Context, l leavingNode) error {
	kube, err := r.kubernetesOfOthers(ctx, l)

	switch {
	case err != nil:
		return fmt.Errorf("%s is not removed: %w", l.name, err)
	case kube == nil:
		return nil
	}

	members, err := r.etcdMembers(ctx, kube)
	if err != nil {
		r.Warn(fmt.Sprintf("could not determine whether %s may leave the cluster: %v", l.name, err))

		return nil
	}

	if !slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Name == l.name }) {
		return nil
	}

	// New servers have joined when it leaves, unless they replace it.
	for _, n := range r.Plan.ControlPlanes() {
		if l.planned == nil && !slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Name == n.Name }) {
			members = append(members, etcd.Member{Name: n.Name})
		}
	}

	return rollout.PreviewRemoval(l.name, r.memberRemoval(l, members), r.Warn)
}

// remove takes a node out of the cluster, when the limiter admits it.
func (r *Removals) remove(ctx context.Context, l leavingNode) error {
	return rollout.NewRemoval(r.Plan, r.Limiter, r.Progress).Disrupt(ctx, plan.Node{Name: l.name, Role: r.roleOf(ctx, l)},
		&nodeRemoval{Removals: r, leavingNode: l}, l.name+" is not removed")
}

// nodeRemoval takes a node out of the cluster: its pods, its member of etcd, its Node. Of one that is said to be dead,
// nothing is waited for.
type nodeRemoval struct {
	*Removals
	leavingNode

	kube *kubeapi.Client
	// server is what Kubernetes knows of a server; nil: it is none.
	server *kubeapi.Server
	// ready says that the node is ready, shutDown that an interrupted run has shut its VM down.
	ready, shutDown bool
}

// Evaluate finds out whether the node may leave, and whether it can.
func (n *nodeRemoval) Evaluate(ctx context.Context) (rollout.Work, error) {
	kube, err := n.kubernetesOfOthers(ctx, n.leavingNode)
	if err != nil || kube == nil {
		return rollout.Work{NotInCluster: true}, err
	}

	if n.kube, err = kube.WithRetry(n.Plan.SettleTimeout, n.Progress, n.serverAddresses()...); err != nil {
		return rollout.Work{}, err
	}

	servers, err := n.kube.Servers(ctx)
	if err != nil {
		return rollout.Work{}, err
	}

	if server, is := servers[n.name]; is {
		n.server, n.shutDown = &server, server.Leaving && n.isShutDown(ctx, n.leavingNode, server)
	}

	if err := n.WaitDisruptable(ctx, impact.EffectRemove); err != nil {
		return rollout.Work{}, err
	}

	if exists, err := n.waitReady(ctx); err != nil || !exists {
		return rollout.Work{NotInCluster: true}, err
	}

	return rollout.Work{
		Effect: impact.EffectRemove, Drain: n.drain,
		DisruptiveSteps: []rollout.DisruptiveStep{{Effect: impact.EffectRemove, Do: n.leave}},
	}, nil
}

// WaitDisruptable waits until etcd can do without a server for good. Which machine the node runs on is looked at last,
// right before anything is done to it: a newer copy of the state may have replaced both.
func (n *nodeRemoval) WaitDisruptable(ctx context.Context, _ impact.Effect) error {
	if err := n.waitRemovable(ctx); err != nil {
		return err
	}

	return n.checkMachine(ctx)
}

func (n *nodeRemoval) waitRemovable(ctx context.Context) error {
	if n.server == nil || n.server.Member == "" {
		return nil
	}

	// Its VM may have been started since.
	n.shutDown = n.server.Leaving && n.isShutDown(ctx, n.leavingNode, *n.server)

	return rollout.WaitRemovable(ctx, n.Plan, n.Progress, func() (d etcd.MemberRemoval, _ string, err error) {
		members, err := n.etcdMembers(ctx, n.kube)
		d = n.memberRemoval(n.leavingNode, members)

		if n.shutDown {
			d.Dead = append(d.Dead, n.name)
		}

		return d, "", err
	})
}

// Backup keeps etcd as it is now.
func (n *nodeRemoval) Backup(ctx context.Context) error { return n.backupEtcd(ctx, n.name) }

// Kubernetes is that of the other servers.
func (n *nodeRemoval) Kubernetes(context.Context) (*kubeapi.Client, error) { return n.kube, nil }

// WaitRejoined is not asked: the node is gone.
func (*nodeRemoval) WaitRejoined(context.Context) error { return nil }

// leave takes the node out of etcd and of Kubernetes.
func (n *nodeRemoval) leave(ctx context.Context) error {
	var left []string

	if n.server != nil {
		if err := n.removeEtcdMember(ctx); err != nil {
			return err
		}

		left = append(left, "etcd")
	}

	if err := n.kube.DeleteNode(ctx, n.name, n.checkNode(ctx)); err != nil {
		err = fmt.Errorf("could not delete its node from Kubernetes: %w", err)

		return errors.Join(rollout.ExplainPartialRemoval(err, n.planned != nil, left...),
			n.kube.Uncordon(context.WithoutCancel(ctx), n.name))
	}

	err := n.kube.WaitForgotten(ctx, n.name, n.Plan.NodeTimeout, n.Progress)

	return rollout.ExplainPartialRemoval(err, n.planned != nil, left...)
}

// waitReady finds out whether the node is ready in Kubernetes, and exists there at all. One that K3s is restarted on
// gets time to be ready.
func (n *nodeRemoval) waitReady(ctx context.Context) (exists bool, err error) {
	grace := wait.GracePeriod{Bound: min(n.Plan.SettleTimeout, n.Plan.NodeTimeout)}

	// The grace period ends before the wait does.
	err = wait.Until(ctx, n.Plan.NodeTimeout+n.Plan.SettleTimeout, n.Progress, func(ctx context.Context) error {
		now, there, err := n.kube.Node(ctx, n.name)
		n.ready, exists = now.Ready, there

		if err != nil || !there || n.ready || n.isDead(n.leavingNode) || n.shutDown || grace.Expired() {
			return err
		}

		return wait.For("%s to be ready in Kubernetes", n.name)
	})

	return exists, err
}

// drain cordons and drains a node.
func (n *nodeRemoval) drain(ctx context.Context, d rollout.Drain) (err error) {
	switch {
	case n.ready:
		err = d.Run(ctx)
	case n.isDead(n.leavingNode) || n.shutDown:
		// Its pods are lost with it.
		err = d.Cordon(ctx)
	default:
		return spec.Blocked(
			"it does not report to Kubernetes",
			"start it again, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
		)
	}

	switch {
	case err == nil:
		return nil
	case !n.isDead(n.leavingNode):
		return rollout.SuggestForce(err)
	}

	n.Warn(fmt.Sprintf("%s is removed although it could not be drained: %v", n.name, err))

	return nil
}

// checkMachine checks that the node is the one of the state.
func (n *nodeRemoval) checkMachine(ctx context.Context) error {
	node, _, err := n.kube.Node(ctx, n.name)
	if err != nil {
		return n.tolerateUnknown(ctx, fmt.Errorf("%w: %w", vmidentity.ErrUnknown, err))
	}

	return n.checkNode(ctx)(node)
}

// checkNode checks that a Node is the one of the state: its VM by Proxmox VE, its machine by Kubernetes.
func (n *nodeRemoval) checkNode(ctx context.Context) func(kubeapi.Node) error {
	return func(node kubeapi.Node) error {
		// This run has found its VM to be ours, or has made it.
		if n.planned != nil && n.Identities.CheckNow(ctx, *n.planned) == nil {
			return nil
		}

		_, err := n.Identities.CheckDeletion(ctx, n.vmResource)
		if err == nil {
			err = rollout.CheckNode(node, n.uuid, n.Identities.StateUUID(ctx, n.vmResource))
		}

		return n.tolerateUnknown(ctx, err)
	}
}

// tolerateUnknown lets a node that is said to be dead be removed although whose it is is not known.
func (n *nodeRemoval) tolerateUnknown(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, vmidentity.ErrUnknown) || ctx.Err() != nil:
		return err
	case !n.isDead(n.leavingNode):
		return rollout.SuggestForce(err)
	}

	n.Warn(fmt.Sprintf("%s is removed although it could not be identified as the machine of the state: %v", n.name,
		err))

	return nil
}

// removeEtcdMember takes a server out of etcd. Its VM is shut down before: a K3s whose member is removed would be
// started again by systemd, and join as another one.
func (n *nodeRemoval) removeEtcdMember(ctx context.Context) error {
	machine, there, err := n.serverVM(ctx, n.leavingNode, *n.server)

	switch {
	case err == nil && there && !machine.Stopped:
		n.Progress("the VM of " + n.name + " is shut down")

		if err = n.kube.MarkLeaving(ctx, n.name); err == nil {
			err = n.Proxmox.Shutdown(ctx, machine)
		}
	case err == nil && !there && n.ready:
		err = errors.New("no VM with its SMBIOS UUID is found, and it must be off before it leaves etcd")
	}

	if err != nil && (n.ready || !n.isDead(n.leavingNode)) {
		return errors.Join(err, n.kube.Uncordon(context.WithoutCancel(ctx), n.name))
	}

	if err != nil {
		n.Warn(fmt.Sprintf("%s is removed although it is unknown whether its VM is off: %v", n.name, err))
	}

	// The shutdown takes its time, and the member is removed by the name of the node.
	if err := n.checkMachine(ctx); err != nil {
		return errors.Join(err, n.kube.Uncordon(context.WithoutCancel(ctx), n.name))
	}

	n.Progress(n.name + " leaves etcd")

	if err := n.kube.RemoveMember(ctx, n.name, n.Plan.NodeTimeout, n.Progress); err != nil {
		return fmt.Errorf("etcd did not remove its member: %w. Its VM is off already: run 'pulumi up' again to complete "+
			"its removal", err)
	}

	return nil
}
