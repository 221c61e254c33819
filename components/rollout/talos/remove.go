package talos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// Removals decides whether a node may lose its machine, and takes it out of the cluster before it does.
type Removals struct {
	*Cluster

	// bootstrap holds that etcd is not forgotten with its last control plane.
	bootstrap *Bootstrap
}

// leavingNode is a node whose configuration is about to be deleted, and its VM after it.
type leavingNode struct {
	talosapi.Target

	role        spec.Role
	credentials talosapi.Credentials
	// forced says that it is named in lifecycle.forceRemove: what it does not do is done without it.
	forced bool
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
}

// Remove runs before the configuration of a node is deleted. Its error leaves the node as it is.
func (r *Removals) Remove(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)

	l, err := r.leavingNode(ctx, args)
	if err != nil {
		return err
	}

	if n := l.planned; n != nil {
		switch {
		case r.Plan.Teardown:
			return nil
		case r.Inventory.AbsentVMIDs()[n.VMID]:
			return r.bootstrap.checkDataKept(ctx, l)
		case l.readdressed(r.Addresses.Get(n.Name)):
			return nil
		case !slices.Contains(r.Plan.Replace, n.Name):
			return r.refuseReplacement(ctx, l)
		}
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	kept := proxmoxvm.FindUnreachable(ctx, r.Proxmox, r.Plan, l.Name)
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

// leavingNode reads the node that leaves from the configuration that was applied: nothing else
// knows a node that is not in the plan.
func (r *Removals) leavingNode(ctx context.Context, args *pulumi.ResourceHookArgs) (leavingNode, error) {
	l := leavingNode{
		Target:      talosapi.Target{Address: hookutil.String(args.OldInputs, "node")},
		credentials: r.credentials(ctx, credentialsOf(args.OldInputs)),
	}

	applied, err := machineconfig.Applied(hookutil.String(args.OldInputs, "machineConfigurationInput"),
		hookutil.Strings(args.OldInputs, "configPatches"))
	if err != nil {
		return l, fmt.Errorf("%s: what the node was configured with cannot be read: %w", args.Name, err)
	}

	l.Name, l.role = machineconfig.Identity(applied)

	if n, there := r.Nodes[args.Name]; there {
		l.planned, l.Name = &n, n.Name
	}

	if l.Name == "" {
		l.Name = strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix)
	}

	l.forced = slices.Contains(r.Plan.ForceRemove, l.Name)

	return l, nil
}

// credentials are those that the cluster has now. Those that a node was configured with may be long expired. They are
// good enough where the others are not known, as in a preview that renews them, or belong to another cluster.
func (r *Removals) credentials(ctx context.Context, configured talosapi.Credentials) talosapi.Credentials {
	bound := r.Plan.NodeTimeout
	if r.DryRun {
		bound = wait.RequestTimeout
	}

	if now, known := r.Credentials.Get(ctx, bound); known && now.CA == configured.CA {
		return now
	}

	return configured
}

// readdressed says that the node has another address now: only what was applied at the old one goes.
func (l leavingNode) readdressed(address string) bool { return address != "" && address != l.Address }

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
			return r.bootstrap.checkDataKept(ctx, l)
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
		return proxmoxvm.CheckSetUp(l.Name, found)
	}

	return nil
}

// preview evaluates the removal in a preview.
func (r *Removals) preview(ctx context.Context, l leavingNode) error {
	if l.role != spec.RoleControlPlane {
		return nil
	}

	members, err := talosapi.EtcdMembers(ctx, r.peers(l.Target, l.role), l.credentials)
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

// nodeRemoval is what leaves etcd: the node, and all members that the plan does not have.
func (r *Removals) nodeRemoval(l leavingNode, members []etcd.Member) etcd.MemberRemoval {
	d := etcd.MemberRemoval{Members: members, Dead: r.Plan.ForceRemove}

	for _, m := range members {
		stays := slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool { return r.is(m, n) })
		if m.Name != "" && (!stays || m.Name == l.Name) {
			d.Leaving = append(d.Leaving, m.Name)
		}
	}

	return d
}

// is says whether a member is a node of the plan: by name, or, before it has started, by address.
func (r *Removals) is(m etcd.Member, n plan.Node) bool {
	return m.Name == n.Name || m.Name == "" && m.Address == r.Addresses.Get(n.Name)
}
