package talos

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
	"talos-proxmox/components/wait"
)

// Remove runs before the configuration of a node is deleted. Its error leaves the node as it is.
func (r *Removals) Remove(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)

	// Where the whole cluster goes, there is nothing for the node to leave.
	if _, planned := r.Nodes[args.Name]; r.Plan.Teardown && (planned || r.Destroying) {
		return nil
	}

	l, err := r.leavingNode(ctx, args)
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
	forced := slices.Contains(r.Plan.ForceRemove, l.Name)

	if kept != nil && (!forced || r.recoversFromSnapshot(l)) {
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

// refuseReplacement refuses to take the machine of a node that stays: the cluster is being destroyed, or something else
// wants a new VM. A machine that belongs to no cluster is a new one already, where the program has made it: a refresh
// takes another VM with our VMID, name and tags for ours.
func (r *Removals) refuseReplacement(ctx context.Context, l leavingNode) error {
	blocked := rollout.RefuseRemoval(l.Name)

	another := r.another(l)

	check := func(ctx context.Context) error {
		switch err := talosapi.Answers(ctx, l.Target, l.credentials); {
		case err == nil:
			return blocked
		case another != nil:
			return another
		case talosapi.Unconfigured(ctx, l.Target):
			return r.bootstrap.CheckDataKept(ctx, l.Name, l.role, l.credentials)
		case r.Limiter.Stopped() != nil:
			return r.Limiter.Stopped()
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
		r.Limiter.Stop(l.Name)
	}

	return err
}

// another is why the VM of a node is not known to be the one that was configured.
func (r *Removals) another(l leavingNode) error {
	if found, there := r.Inventory.VM(l.planned.VMID); there {
		return vmidentity.CheckSetUp(l.Name, found, vmidentity.OwnerTags(r.Plan))
	}

	return nil
}

// preview evaluates the removal in a preview.
func (r *Removals) preview(ctx context.Context, l leavingNode) error {
	if l.role != spec.RoleControlPlane {
		return nil
	}

	members, err := talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)
	if err != nil {
		r.Warn(fmt.Sprintf("whether %s may leave is not known: %v", l.Name, err))

		return nil
	}

	// Those that are to come are there when it leaves.
	for _, n := range r.Plan.ControlPlanes() {
		if !slices.ContainsFunc(members, func(m etcd.Member) bool { return r.is(m, n) }) {
			members = append(members, etcd.Member{Name: n.Name})
		}
	}

	return rollout.PreviewRemoval(l.Name, r.nodeRemoval(l, members), r.Warn)
}
