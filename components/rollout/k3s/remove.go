package k3s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// Remove runs before the membership of a node is deleted. Its error leaves the node as it is.
func (r *Removals) Remove(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)

	joined := hookutil.Unwrap(args.OldInputs["input"])
	if !joined.IsObject() {
		return nil
	}

	inputs := joined.ObjectValue()
	l := leavingNode{
		name:       hookutil.String(inputs, "name"),
		vmResource: strings.TrimSuffix(args.Name, tokens.JoinedSuffix) + tokens.VMSuffix,
		vmid:       int(hookutil.Number(inputs, "vmid")),
		uuid:       hookutil.String(inputs, "uuid"),
	}

	if n, there := r.Nodes[args.Name]; there {
		l.planned, l.name = &n, n.Name

		if n.Name == r.Plan.ControlPlanes()[0].Name {
			r.clusterExisted.Store(true)
		}
	}

	if l.name == "" || r.Plan.Teardown {
		return nil
	}

	if err := r.locate(ctx); err != nil {
		return err
	}

	if l.planned != nil {
		gone, err := r.machineGone(ctx, l)
		if errors.Is(err, vmidentity.ErrOtherVM) && r.mayReplaceOther(l) {
			err = nil
		}

		switch {
		case errors.Is(err, proxmoxapi.ErrHostUnreachable) && r.Plan.Replaces(l.name):
			// FindUnreachable says what can be done there.
		case errors.Is(err, vmidentity.ErrOtherVM):
			return err
		case err != nil:
			return fmt.Errorf("%s: could not determine whether its machine is the one that joined: %w", l.name, err)
		case !gone && !r.Plan.Replaces(l.name):
			if !r.DryRun {
				r.Limiter.Fail(l.name)
			}

			return rollout.RefuseRemoval(l.name)
		case gone && l.planned.Role == spec.RoleWorker:
			return nil
		}

		l.dead = gone
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	kept := vmidentity.FindUnreachable(ctx, r.Proxmox, r.Plan, l.name)
	if kept != nil && !r.Plan.DeclaredDead(l.name) {
		return kept.BlocksRemoval()
	}

	if r.DryRun {
		if kept != nil {
			r.Warn(kept.PreviewRemoval())
		}

		return r.previewRemoval(ctx, l)
	}

	err := r.remove(ctx, l)
	if err == nil && kept != nil {
		// What is left to do concerns no other node.
		return kept.LeftBehind()
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
	return rollout.Removals(r.Plan, r.Limiter, r.Progress).Disrupt(ctx, plan.Node{Name: l.name, Role: r.roleOf(ctx, l)},
		&nodeRemoval{Removals: r, leavingNode: l}, l.name+" is not removed")
}
