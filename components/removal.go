package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// toDestroy are the two steps that take a whole cluster away.
const toDestroy = "to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', then 'pulumi destroy'"

// removal decides whether a node may lose its machine, and takes it out of the cluster before it does.
type removal struct {
	ctx       *pulumi.Context
	plan      *plan.Plan
	proxmox   Proxmox
	addresses *proxmoxvm.AddressBook
	limiter   *rollout.Limiter
	backup    backup
	say       wait.Say
	// current are the credentials of the cluster; of an update that has renewed them, the new ones.
	current *future[talosapi.Credentials]
	// nodes of the plan, by the name of their configuration.
	nodes map[string]plan.Node
	// absent are the VMIDs of planned nodes that had no VM when the run began.
	absent map[int]bool
	// bootstrap holds that etcd is not forgotten with its last control plane.
	bootstrap *bootstrap
}

// leaver is a node whose configuration is about to be deleted, and its VM after it.
type leaver struct {
	talosapi.Target

	role        spec.Role
	credentials talosapi.Credentials
	// forced says that it is named in lifecycle.forceRemove: what it does not do is done without it.
	forced bool
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
}

// before runs before the configuration of a node is deleted. Its error leaves the node as it is.
func (r *removal) before(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	l, err := r.leaver(ctx, args)
	if err != nil {
		return err
	}

	if n := l.planned; n != nil {
		switch {
		case r.plan.Teardown:
			return nil
		case r.absent[n.VMID]:
			return r.bootstrap.mayLose(ctx, l)
		case l.moved(r.addresses.Get(n.Name)):
			return nil
		case !slices.Contains(r.plan.Replace, n.Name):
			return r.keep(ctx, l)
		}
	}

	// Of a host that does not answer, Proxmox VE deletes no VM.
	kept := proxmoxvm.FindUnreachable(ctx, r.proxmox, r.plan, l.Name)
	forced := slices.Contains(r.plan.ForceRemove, l.Name)

	if kept != nil && (!forced || r.recovers(l)) {
		return kept.BlocksRemoval()
	}

	if r.recovers(l) {
		return r.giveUp(ctx, l)
	}

	if r.ctx.DryRun() {
		if kept != nil {
			r.warn(kept.PreviewRemoval())
		}

		return r.foresee(ctx, l)
	}

	err = rollout.Removals(r.plan, r.limiter, r.say).Disrupt(ctx, plan.Node{Name: l.Name, Role: l.role},
		&nodeRemoval{removal: r, leaver: l}, l.Name+" is not removed")
	if err == nil && kept != nil {
		// What is left to do concerns no other node.
		return kept.LeftBehind()
	}

	return err
}

// leaver reads who leaves from the configuration that was applied: a node that is out of the plan is known from nowhere else.
func (r *removal) leaver(ctx context.Context, args *pulumi.ResourceHookArgs) (leaver, error) {
	l := leaver{
		Target:      talosapi.Target{Address: hookutil.String(args.OldInputs, "node")},
		credentials: r.credentials(ctx, credentials(args.OldInputs)),
	}

	applied, err := machineconfig.Applied(hookutil.String(args.OldInputs, "machineConfigurationInput"),
		hookutil.Strings(args.OldInputs, "configPatches"))
	if err != nil {
		return l, fmt.Errorf("%s: what the node was configured with cannot be read: %w", args.Name, err)
	}

	l.Name, l.role = machineconfig.Identity(applied)

	if n, there := r.nodes[args.Name]; there {
		l.planned, l.Name = &n, n.Name
	}

	if l.Name == "" {
		l.Name = strings.TrimSuffix(args.Name, "-config")
	}

	l.forced = slices.Contains(r.plan.ForceRemove, l.Name)

	return l, nil
}

// credentials are those that the cluster has now. Those that a node was configured with may be long expired. They are
// good enough where the others are not known, as in a preview that renews them, or belong to another cluster.
func (r *removal) credentials(ctx context.Context, configured talosapi.Credentials) talosapi.Credentials {
	bound := r.plan.NodeTimeout
	if r.ctx.DryRun() {
		bound = wait.Ask
	}

	if now, known := r.current.get(ctx, bound); known && now.CA == configured.CA {
		return now
	}

	return configured
}

// moved says that the node has another address now: only what was applied at the old one goes.
func (l leaver) moved(address string) bool { return address != "" && address != l.Address }

// keep refuses to take the machine of a node that stays: the cluster is being destroyed, or something else wants a new VM. A
// machine that belongs to no cluster is a new one already, where the program has made it: a refresh takes another VM with our VMID,
// name and tags for ours.
func (r *removal) keep(ctx context.Context, l leaver) error {
	refused := fmt.Errorf("%s is in the configuration, and its machine is not taken away; to recreate it, name it in lifecycle.replace; %s", l.Name, toDestroy)

	another := r.another(l)

	look := func(ctx context.Context) (string, error) {
		switch err := talosapi.Answers(ctx, l.Target, l.credentials); {
		case err == nil:
			return "", refused
		case another != nil:
			return "", another
		case talosapi.Unconfigured(ctx, l.Target):
			return "", r.bootstrap.mayLose(ctx, l)
		default:
			return fmt.Sprintf("%s to answer at %s (%v)", l.Name, l.Address, err), errors.Join(r.limiter.Stopped())
		}
	}

	if r.ctx.DryRun() {
		_, err := look(ctx)

		return err
	}

	err := wait.Until(ctx, r.plan.NodeTimeout, r.say, look)
	if err != nil {
		r.limiter.Stop(l.Name)
	}

	return err
}

// another is why the VM of a node is not known to be the one that was configured.
func (r *removal) another(l leaver) error {
	if found, there := r.bootstrap.report.VM(l.planned.VMID); there {
		return proxmoxvm.CheckSetUp(l.Name, found)
	}

	return nil
}

// foresee is the judgement in a preview. What is amiss now may be in order when it is carried out, so that is a warning; too
// few members are an error.
func (r *removal) foresee(ctx context.Context, l leaver) error {
	if l.role != spec.RoleControlPlane {
		return nil
	}

	members, err := talosapi.EtcdMembers(ctx, r.controlPlanes(l), l.credentials)
	if err != nil {
		r.warn(fmt.Sprintf("whether %s may leave is not known: %v", l.Name, err))

		return nil
	}

	// Those that are to come are there when it leaves.
	for _, n := range r.plan.ControlPlanes() {
		if !slices.ContainsFunc(members, func(m lifecycle.Member) bool { return r.is(m, n) }) {
			members = append(members, lifecycle.Member{Name: n.Name})
		}
	}

	return previewRemoval(l.Name, r.departure(l, members), r.warn)
}

// previewRemoval judges a removal as the members are now.
func previewRemoval(name string, d lifecycle.Departure, warn func(string)) error {
	if err := d.Counted(); err != nil {
		return fmt.Errorf("%s is not removed: %w", name, err)
	}

	if err := d.Judge(); err != nil {
		warn(fmt.Sprintf("as it is now, %s would not be removed: %v", name, err))
	}

	return nil
}

// warn shows what is no error. Where the program has ended already, nobody listens.
func (r *removal) warn(message string) { _ = r.ctx.Log.Warn(message, nil) }

// departure is who leaves: the node, and all members that the plan does not have.
func (r *removal) departure(l leaver, members []lifecycle.Member) lifecycle.Departure {
	d := lifecycle.Departure{Members: members, Dead: r.plan.ForceRemove}

	for _, m := range members {
		stays := slices.ContainsFunc(r.plan.ControlPlanes(), func(n plan.Node) bool { return r.is(m, n) })
		if m.Name != "" && (!stays || m.Name == l.Name) {
			d.Leaving = append(d.Leaving, m.Name)
		}
	}

	return d
}

// is says whether a member is a node of the plan: by name, or, before it has started, by address.
func (r *removal) is(m lifecycle.Member, n plan.Node) bool {
	return m.Name == n.Name || m.Name == "" && m.Address == r.addresses.Get(n.Name)
}

// controlPlanes are those to ask about the node that leaves.
func (r *removal) controlPlanes(l leaver) []talosapi.Target {
	return peersOf(r.plan, r.addresses, l.Target, l.role)
}
