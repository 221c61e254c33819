package components

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// rollout carries changes to nodes that run. What takes a node down it does itself, before the provider applies the
// configuration: nodes go in turns, without their pods, and the next when the last is back. What the provider then applies
// needs no reboot any more.
type rollout struct {
	ctx       *pulumi.Context
	plan      *plan.Plan
	addresses *roster
	turns     *turns
	canaries  *canaries
	backup    backup
	say       wait.Say
	// nodes of the plan, by the name of their configuration.
	nodes map[string]plan.Node
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
func (r *rollout) before(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.changing(args)
	if err != nil {
		return err
	}

	if r.ctx.DryRun() {
		return r.foresee(ctx, c)
	}

	v, err := r.judgeAnswering(ctx, c)
	if err != nil {
		return err
	}

	if !v.Effect.Down() && !v.carries {
		// A run that was cut off may have left the node cordoned. Kubernetes may be what the change is to mend.
		if kube, err := kubernetes(ctx, r.others(c), c.credentials); err == nil {
			return kube.Uncordon(ctx, c.Name)
		}

		return nil
	}

	return r.inTurn(ctx, c)
}

// changing reads what is to be applied.
func (r *rollout) changing(args *pulumi.ResourceHookArgs) (changing, error) {
	n, there := r.nodes[args.Name]
	if !there {
		return changing{}, fmt.Errorf("%s is the configuration of no node of the plan", args.Name)
	}

	c := changing{
		Target: talosapi.Target{Name: n.Name, Address: text(args.NewInputs, "node")}, node: n, credentials: credentials(args.NewInputs),
	}

	input := text(args.NewInputs, "machineConfigurationInput")
	if input == "" && r.ctx.DryRun() {
		return c, nil
	}

	var err error
	if c.wanted, err = machineconfig.Applied(input, texts(args.NewInputs, "configPatches")); err != nil {
		return c, fmt.Errorf("%s: %w", n.Name, err)
	}

	return c, nil
}

// foresee says in a preview what will become of the node. A refusal is an error there, too; silence of a node is none.
func (r *rollout) foresee(ctx context.Context, c changing) error {
	v := r.judge(ctx, c)

	if v.Effect.Down() && c.node.Role == plan.ControlPlane {
		members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)
		if err == nil {
			v.Quorum = lifecycle.Quorum(lifecycle.Voters(members))
			err = lifecycle.Outage(members, c.Name, v.Effect)
		}

		if err != nil {
			_ = r.ctx.Log.Warn(fmt.Sprintf("as it is now, %s would not be taken down: %v", c.Name, err), nil)
		}
	}

	row, err := json.Marshal(v.Row)
	if err != nil {
		return err
	}

	// The first is for people, the second for 'ops impact'.
	if err := errors.Join(r.ctx.Log.Info(v.String(), nil), r.ctx.Log.Debug(lifecycle.RowMark+string(row), nil)); err != nil {
		return err
	}

	return v.refused
}

// judgeAnswering judges a node as soon as it answers.
func (r *rollout) judgeAnswering(ctx context.Context, c changing) (verdict, error) {
	var v verdict

	err := wait.Until(ctx, r.plan.NodeTimeout, r.say, func(ctx context.Context) (string, error) {
		v = r.judge(ctx, c)
		if v.Effect == lifecycle.Unknown {
			return fmt.Sprintf("%s at %s: %s", c.Name, c.Address, v.Why), nil
		}

		return "", v.refused
	})
	if err != nil {
		return v, fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return v, nil
}

// judge asks the node what it runs, and what it thinks of the configuration.
func (r *rollout) judge(ctx context.Context, c changing) verdict {
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

	change.Silent = err
	v := verdict{now: now, carries: err == nil && change.Now.Kubernetes != change.Wanted.Kubernetes && r.plan.Apply != plan.ApplyStaged, Row: lifecycle.Row{
		Node: c.Name, Pool: c.node.Pool, Role: string(c.node.Role), Now: change.Now.String(), Wanted: change.Wanted.String(), Settings: change.Settings,
		Limits: lifecycle.Limits{MaxUnavailable: r.plan.MaxUnavailable, Canary: r.plan.Canary},
	}}

	if v.Effect, v.Why, v.refused = change.Judge(); v.refused != nil {
		v.Refused = v.refused.Error()
		v.refused = fmt.Errorf("%s: %w", c.Name, v.refused)
	}

	return v
}

func (r *rollout) needsReboot(ctx context.Context, c changing) (bool, error) {
	data, err := c.wanted.Bytes()
	if err != nil {
		return false, err
	}

	return talosapi.NeedsReboot(ctx, c.Target, c.credentials, data)
}

// inTurn takes the node down, or carries it over to another Kubernetes, when it is its turn.
func (r *rollout) inTurn(ctx context.Context, c changing) (err error) {
	bound := r.plan.DrainTimeout + 3*r.plan.UpgradeTimeout + 2*r.plan.ReadyTimeout

	if c.node.Role != plan.ControlPlane && r.plan.Canary {
		done, err := r.canaries.enter(ctx, c.node.Pool, bound)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		defer done()
	}

	end, err := r.turns.take(ctx, c.Name, c.node.Role, bound, r.say)
	if err != nil {
		return err
	}

	if err = r.takeDown(ctx, c); err != nil {
		err = fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	end(err)

	return err
}

// others are the control planes to ask about the node.
func (r *rollout) others(c changing) []talosapi.Target {
	return peersOf(r.plan, r.addresses, c.Target, c.node.Role)
}

// canaries let one worker of a pool go before the others.
type canaries struct {
	mu    sync.Mutex
	first map[string]chan struct{} // by pool: closed when its canary is done
}

// enter makes the first of a pool its canary; the others wait until that is done, for at most the bound.
func (c *canaries) enter(ctx context.Context, pool string, bound time.Duration) (done func(), err error) {
	c.mu.Lock()
	first, there := c.first[pool]

	if !there {
		first = make(chan struct{})
		c.first[pool] = first
		c.mu.Unlock()

		return func() { close(first) }, nil
	}

	c.mu.Unlock()

	select {
	case <-first:
		return func() {}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(bound):
		return nil, fmt.Errorf("gave up after %s, waiting for the first node of pool %s", bound, pool)
	}
}
