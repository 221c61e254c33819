package talos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// Changes are changes of the configuration of nodes, and of the Talos and Kubernetes that they run. What takes a node
// down is done before the provider applies the configuration, which then needs no reboot any more.
type Changes struct {
	*Cluster

	rollout   *rollout.Rollout
	bootstrap *Bootstrap
	// checkedDeprecations is done when the cluster was searched for what the next version of Kubernetes has removed.
	checkedDeprecations sync.Once
	// manifestsSynced says that what Talos installs into Kubernetes is up to date. It is only read
	// while a control plane is changed.
	manifestsSynced bool
}

// nodeChange is a node whose configuration is about to change.
type nodeChange struct {
	talosapi.Target

	node        plan.Node
	credentials talosapi.Credentials
	// wanted is the configuration that is to be applied; nil in a preview that does not know it yet.
	wanted talosconfig.Provider
}

// evaluation is what a change does to a node, and what the node ran when that was found out.
type evaluation struct {
	impact.NodeImpact

	now     talosapi.System
	blocked error
}

// Change runs before the configuration of a node is changed. Its error leaves the node as it is.
func (r *Changes) Change(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.readChange(args)
	if err != nil {
		return err
	}

	if r.DryRun {
		return r.preview(ctx, c)
	}

	return r.change(ctx, c)
}

// change does what takes a node down, or to another Kubernetes, and then sends it its configuration.
func (r *Changes) change(ctx context.Context, c nodeChange) error {
	v, err := r.evaluateAnswering(ctx, c)
	if err != nil {
		return err
	}

	if v.Kubernetes {
		r.warnOfRemoved(ctx, c, v.now)
	}

	if v.Effect.Down() || v.Kubernetes {
		err = r.rollout.Disrupt(ctx, c.node, &talosChange{talosNode{r, c}}, c.Name+" is not changed")
	} else if kube, unreachable := r.retryingKubernetes(ctx, r.others(c), c.credentials); unreachable == nil {
		// An interrupted run may have left the node cordoned. The change may be what repairs Kubernetes.
		err = kube.Uncordon(ctx, c.Name)
	}

	// What differs in the order of its text alone is not sent.
	if err != nil || v.Effect == impact.EffectNone {
		return err
	}

	return r.send(ctx, c)
}

// readChange reads what is to be applied.
func (r *Changes) readChange(args *pulumi.ResourceHookArgs) (nodeChange, error) {
	n, err := r.node(args)
	if err != nil {
		return nodeChange{}, err
	}

	c := nodeChange{
		Target: talosapi.Target{Name: n.Name, Address: hookutil.String(args.NewInputs, "node")}, node: n,
		credentials: credentialsOf(args.NewInputs),
	}

	input := hookutil.String(args.NewInputs, "machineConfigurationInput")
	if input == "" && r.DryRun {
		return c, nil
	}

	if c.wanted, err = machineconfig.Applied(input, hookutil.Strings(args.NewInputs, "configPatches")); err != nil {
		return c, fmt.Errorf("%s: %w", n.Name, err)
	}

	return c, nil
}

// preview says in a preview what will become of the node. A refusal is an error there, too; a node that does
// not answer is none.
func (r *Changes) preview(ctx context.Context, c nodeChange) error {
	v := r.evaluate(ctx, c)

	if v.Kubernetes {
		r.warnOfRemoved(ctx, c, v.now)
	}

	if v.Effect.Down() && c.node.Role == spec.RoleControlPlane {
		v.Quorum = r.previewDisruption(ctx, c, v.Effect)
	}

	return errors.Join(r.Program.Preview(v.NodeImpact), v.blocked)
}

// previewDisruption warns of what would keep a control plane from being taken down as it is now, and says what is left
// of etcd meanwhile.
func (r *Changes) previewDisruption(ctx context.Context, c nodeChange, effect impact.Effect) (quorum string) {
	members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)
	if err == nil {
		quorum = etcd.QuorumText(etcd.Voters(members))
		err = etcd.CheckDisruption(members, c.Name, effect)
	}

	if err != nil {
		r.Warn(fmt.Sprintf("as it is now, %s would not be taken down: %v", c.Name, err))
	}

	return quorum
}

// evaluateAnswering evaluates a change as soon as the node answers.
func (r *Changes) evaluateAnswering(ctx context.Context, c nodeChange) (evaluation, error) {
	var v evaluation

	err := wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		v = r.evaluate(ctx, c)
		if v.Effect == impact.EffectUnknown {
			return cmp.Or(r.checkNotReset(ctx, c), wait.For("%s at %s: %s", c.Name, c.Address, v.Why))
		}

		return v.blocked
	})
	if err != nil {
		return v, fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return v, nil
}

// evaluate asks the node what it runs, and what it thinks of the configuration.
func (r *Changes) evaluate(ctx context.Context, c nodeChange) evaluation {
	change := impact.Change{Apply: r.Plan.Apply}

	now, err := talosapi.Ask(ctx, c.Target, c.credentials)
	if err == nil && c.wanted == nil {
		err = errors.New("what it is to run is not known yet")
	}

	if err == nil {
		change.Now, change.Wanted = now.System, machineconfig.System(c.wanted)
		change.Now.Kubernetes = machineconfig.System(now.Configuration).Kubernetes
		change.Settings, err = impact.Settings(now.Configuration, c.wanted)

		if r.defaultInstaller(c.node) {
			// It holds no extensions, and nothing was said of those that the node runs with.
			change.Wanted.Schematic = ""
		}
	}

	if err == nil && !change.Upgrades() {
		// A system that is about to be replaced need not know what the next one does.
		change.Reboot, err = r.needsReboot(ctx, c, now.Talos, change.Settings)
	}

	var rejected talosapi.RejectedError
	if errors.As(err, &rejected) {
		change.Rejected, err = rejected, nil
	}

	change.Silent = err
	v := evaluation{now: now, NodeImpact: impact.NodeImpact{
		Node: c.Name, Pool: c.node.Pool, Role: string(c.node.Role), Now: change.Now.String(), Wanted: change.Wanted.String(),
		Settings: change.Settings,
		Limits:   impact.Limits{MaxUnavailable: r.Plan.MaxUnavailable, Canary: r.Plan.Canary},
	}}

	var blocked error
	v.Effect, v.Why, blocked = change.Evaluate()
	v.Kubernetes = err == nil && change.Rejected == nil &&
		change.Now.Kubernetes != change.Wanted.Kubernetes && r.Plan.Apply != spec.ApplyStaged
	v.blocked = v.Refuse(blocked)

	return v
}

// defaultInstaller says whether a node is upgraded from an installer of which nothing was stated.
func (r *Changes) defaultInstaller(n plan.Node) bool {
	id, err := machineconfig.SchematicID(r.Plan, r.Plan.PoolOf(n).Image, n)

	return err == nil && id == ""
}

func (r *Changes) needsReboot(ctx context.Context, c nodeChange, version string,
	settings []impact.Setting,
) (bool, error) {
	data, err := c.wanted.Bytes()
	if err != nil {
		return false, err
	}

	reboots, err := talosapi.NeedsReboot(ctx, c.Target, c.credentials, data)

	return reboots || err == nil && impact.WaitsForReboot(version, settings), err
}

// needsRebootNow asks a node that may have been upgraded meanwhile.
func (r *Changes) needsRebootNow(ctx context.Context, c nodeChange) (bool, error) {
	now, err := talosapi.Ask(ctx, c.Target, c.credentials)
	if err != nil {
		return false, err
	}

	settings, err := impact.Settings(now.Configuration, c.wanted)
	if err != nil {
		return false, err
	}

	return r.needsReboot(ctx, c, now.Talos, settings)
}

// others are the control planes to ask about the node.
func (r *Changes) others(c nodeChange) []talosapi.Target {
	return r.peers(c.Target, c.node.Role)
}
