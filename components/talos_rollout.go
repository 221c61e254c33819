package components

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// talosRollout carries changes to nodes that run. What takes a node down it does itself, before the provider applies
// the configuration: nodes go in turns, without their pods, and the next when the last is back. What the provider then
// applies needs no reboot any more.
type talosRollout struct {
	ctx       *pulumi.Context
	plan      *plan.Plan
	addresses *proxmoxvm.AddressBook
	rollout   *rollout.Rollout
	backup    backup
	say       wait.Say
	report    *preflight.Report
	proxmox   Proxmox
	// uuids tell the cluster's VMs from other machines.
	uuids vmUUIDs
	// nodes of the plan, by the name of their configuration.
	nodes map[string]plan.Node
	// looked is done when the cluster was looked through for what the next version of Kubernetes has no more.
	looked sync.Once
	// beside says that what Talos installs into Kubernetes is up to date. Only who has a control plane's turn looks at it.
	beside bool
}

// changing is a node whose configuration is about to change.
type changing struct {
	talosapi.Target

	node        plan.Node
	credentials talosapi.Credentials
	// wanted is the configuration that is to be applied; nil in a preview that does not know it yet.
	wanted talosconfig.Provider
}

// verdict is what a change does to a node, and what the node ran when that was found out.
type verdict struct {
	lifecycle.Row

	now     talosapi.System
	refused error
	// carries says that Kubernetes goes to another version.
	carries bool
}

// before runs before the configuration of a node is changed. Its error leaves the node as it is.
func (r *talosRollout) before(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.changing(args)
	if err != nil {
		return err
	}

	if r.ctx.DryRun() {
		return r.foresee(ctx, c)
	}

	return r.change(ctx, c)
}

// change does what takes a node down, or to another Kubernetes, and then sends it its configuration.
func (r *talosRollout) change(ctx context.Context, c changing) error {
	v, err := r.judgeAnswering(ctx, c)
	if err != nil {
		return err
	}

	if v.carries {
		r.warnOfRemoved(ctx, c, v.now)
	}

	if v.Effect.Down() || v.carries {
		err = r.rollout.Disrupt(ctx, c.node, &talosChange{talosNode{r, c}}, c.Name+" is not changed")
	} else if kube, unreachable := lasting(ctx, r.others(c), c.credentials, r.plan, r.say); unreachable == nil {
		// A run that was cut off may have left the node cordoned. Kubernetes may be what the change is to mend.
		err = kube.Uncordon(ctx, c.Name)
	}

	// What differs in the order of its text alone is not sent.
	if err != nil || v.Effect == lifecycle.None {
		return err
	}

	return r.send(ctx, c)
}

// changing reads what is to be applied.
func (r *talosRollout) changing(args *pulumi.ResourceHookArgs) (changing, error) {
	n, there := r.nodes[args.Name]
	if !there {
		return changing{}, fmt.Errorf("%s is the configuration of no node of the plan", args.Name)
	}

	c := changing{
		Target: talosapi.Target{Name: n.Name, Address: hookutil.String(args.NewInputs, "node")}, node: n,
		credentials: credentials(args.NewInputs),
	}

	input := hookutil.String(args.NewInputs, "machineConfigurationInput")
	if input == "" && r.ctx.DryRun() {
		return c, nil
	}

	var err error
	if c.wanted, err = machineconfig.Applied(input, hookutil.Strings(args.NewInputs, "configPatches")); err != nil {
		return c, fmt.Errorf("%s: %w", n.Name, err)
	}

	return c, nil
}

// foresee says in a preview what will become of the node. A refusal is an error there, too; silence of a node is none.
func (r *talosRollout) foresee(ctx context.Context, c changing) error {
	v := r.judge(ctx, c)

	if v.carries {
		r.warnOfRemoved(ctx, c, v.now)
	}

	if v.Effect.Down() && c.node.Role == spec.RoleControlPlane {
		v.Quorum = r.outage(ctx, c, v.Effect)
	}

	return errors.Join(tell(r.ctx, v.Row), v.refused)
}

// tell shows in a preview what will become of a node, to people and to 'ops impact'.
func tell(ctx *pulumi.Context, row lifecycle.Row) error {
	message, err := row.Message()

	return errors.Join(err, ctx.Log.Info(row.String(), nil), ctx.Log.Debug(message, nil))
}

// outage warns of what would keep a control plane from being taken down as it is now, and says what is left of etcd
// meanwhile.
func (r *talosRollout) outage(ctx context.Context, c changing, effect lifecycle.Effect) (quorum string) {
	members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)
	if err == nil {
		quorum = lifecycle.Quorum(lifecycle.Voters(members))
		err = lifecycle.Outage(members, c.Name, effect)
	}

	if err != nil {
		_ = r.ctx.Log.Warn(fmt.Sprintf("as it is now, %s would not be taken down: %v", c.Name, err), nil)
	}

	return quorum
}

// judgeAnswering judges a node as soon as it answers.
func (r *talosRollout) judgeAnswering(ctx context.Context, c changing) (verdict, error) {
	var v verdict

	err := wait.Until(ctx, r.plan.NodeTimeout, r.say, func(ctx context.Context) (string, error) {
		v = r.judge(ctx, c)
		if v.Effect == lifecycle.Unknown {
			return fmt.Sprintf("%s at %s: %s", c.Name, c.Address, v.Why), r.notTheNode(ctx, c)
		}

		return "", v.refused
	})
	if err != nil {
		return v, fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return v, nil
}

// judge asks the node what it runs, and what it thinks of the configuration.
func (r *talosRollout) judge(ctx context.Context, c changing) verdict {
	change := lifecycle.Change{Apply: r.plan.Apply}

	now, err := talosapi.Ask(ctx, c.Target, c.credentials)
	if err == nil && c.wanted == nil {
		err = errors.New("what it is to run is not known yet")
	}

	if err == nil {
		change.Now, change.Wanted = now.System, machineconfig.System(c.wanted)
		change.Now.Kubernetes = machineconfig.System(now.Configuration).Kubernetes
		change.Settings, err = lifecycle.Settings(now.Configuration, c.wanted)
	}

	if err == nil && !change.Upgrades() {
		// A system that is about to be replaced need not know what the next one does.
		change.Reboot, err = r.needsReboot(ctx, c)
	}

	var rejected talosapi.RejectedError
	if errors.As(err, &rejected) {
		change.Rejected, err = rejected, nil
	}

	change.Silent = err
	v := verdict{now: now, carries: err == nil && change.Rejected == nil && change.Now.Kubernetes != change.Wanted.Kubernetes && r.plan.Apply != spec.ApplyStaged, Row: lifecycle.Row{
		Node: c.Name, Pool: c.node.Pool, Role: string(c.node.Role), Now: change.Now.String(), Wanted: change.Wanted.String(), Settings: change.Settings,
		Limits: lifecycle.Limits{MaxUnavailable: r.plan.MaxUnavailable, Canary: r.plan.Canary},
	}}

	var refused error
	v.Effect, v.Why, refused = change.Judge()
	v.Kubernetes = v.carries
	v.refused = v.Refuse(refused)

	return v
}

func (r *talosRollout) needsReboot(ctx context.Context, c changing) (bool, error) {
	data, err := c.wanted.Bytes()
	if err != nil {
		return false, err
	}

	return talosapi.NeedsReboot(ctx, c.Target, c.credentials, data)
}

// others are the control planes to ask about the node.
func (r *talosRollout) others(c changing) []talosapi.Target {
	return peersOf(r.plan, r.addresses, c.Target, c.node.Role)
}
