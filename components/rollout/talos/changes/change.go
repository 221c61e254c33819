package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// Change runs before the configuration of a node is changed. Its error leaves the node as it is.
func (r *Changes) Change(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.readChange(ctx, args)
	if err != nil {
		return err
	}

	if r.DryRun {
		return r.preview(ctx, c)
	}

	return r.change(ctx, c)
}

// checkKubernetes refuses a version of Kubernetes that the node is not to get yet, and warns of what is gone in it.
func (r *Changes) checkKubernetes(ctx context.Context, c nodeChange, v evaluation) error {
	if !v.Kubernetes {
		return nil
	}

	if err := r.checkVersion(ctx, c); err != nil {
		return err
	}

	r.warnOfRemoved(ctx, c, v.now)

	return nil
}

// change does what takes a node down, or to another Kubernetes, and then sends it its configuration.
func (r *Changes) change(ctx context.Context, c nodeChange) error {
	v, err := r.evaluateAnswering(ctx, c)
	if err != nil {
		return err
	}

	if err := r.checkKubernetes(ctx, c, v); err != nil {
		return err
	}

	if v.Effect.Down() || v.Kubernetes {
		err = r.rollout.Disrupt(ctx, c.node, &talosChange{talosNode{Changes: r, nodeChange: c}}, c.Name+" is not changed")
	} else if kube, unreachable := r.RetryingKubernetes(ctx, r.others(c), c.credentials); unreachable == nil {
		// An interrupted run may have left the node cordoned. The change may be what repairs Kubernetes.
		err = kube.Uncordon(ctx, c.Name)
	}

	staged := r.Plan.Apply == spec.ApplyStaged

	switch {
	case err != nil:
		return err
	case v.Effect == impact.EffectNone && staged:
		return nil // what differs in the order of its text alone is not sent
	case v.Effect == impact.EffectNone:
		return r.checkServesAsWanted(ctx, c)
	case staged:
		return r.send(ctx, c)
	default:
		return r.sendRest(ctx, c)
	}
}

// sendRest gives a node what is left to change of its configuration, which needs no reboot any more.
func (r *Changes) sendRest(ctx context.Context, c nodeChange) error {
	// One that does not serve may be repaired by the change, and keeps no other from being repaired.
	if !r.watch(c).Serves(ctx) {
		return r.send(ctx, c)
	}

	// One to which nothing is left to do is no canary.
	if _, settings, err := r.pending(ctx, c); err != nil {
		return err
	} else if len(settings) == 0 {
		return r.send(ctx, c)
	}

	return r.sendLive(ctx, c)
}

// preview says in a preview what will become of the node. A refusal is an error there, too; a node that does
// not answer is none.
func (r *Changes) preview(ctx context.Context, c nodeChange) error {
	v := r.evaluate(ctx, c)

	if err := r.checkKubernetes(ctx, c, v); err != nil {
		return err
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
		r.Warn(fmt.Sprintf("in the current state of the cluster, %s would not be disrupted: %v", c.Name, err))
	}

	return quorum
}

// evaluation is what a change does to a node, and what the node ran when that was found out.
type evaluation struct {
	impact.NodeImpact

	now     talosapi.System
	blocked error
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
		err = errors.New("its new configuration is not known yet")
	}

	if err == nil {
		change.Now, change.Wanted = now.System, talosimage.System(c.wanted)
		change.Now.Kubernetes = talosimage.System(now.Configuration).Kubernetes
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
	id, err := talosimage.SchematicID(r.Plan, r.Plan.PoolOf(n).Image, n)

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

// talosChange is the change of a node's configuration, or of the Talos or Kubernetes that it runs.
type talosChange struct{ talosNode }

// Evaluate finds out what takes the node down: an upgrade, a reboot into its configuration, or both. Kubernetes goes to
// another version when the node is up.
func (t *talosChange) Evaluate(ctx context.Context) (rollout.Change, error) {
	if _, err := t.waitRunning(ctx, t.nodeChange); err != nil {
		return rollout.Change{}, err
	}

	v := t.evaluate(ctx, t.nodeChange)
	if v.blocked != nil {
		return rollout.Change{}, v.blocked
	}

	if v.Effect == impact.EffectUnknown {
		return rollout.Change{}, errors.New(v.Why)
	}

	change := rollout.Change{Effect: v.Effect}
	if v.Kubernetes {
		change.Online = func(ctx context.Context) error { return t.upgradeKubernetes(ctx, t.nodeChange) }
	}

	if !v.Effect.Down() {
		return change, nil
	}

	// That does not upgrade Kubernetes.
	rebooted := t.nodeChange
	if v.Kubernetes {
		var err error
		if rebooted.wanted, err = withRunningKubernetes(t.nodeChange, v.now.Configuration); err != nil {
			return change, err
		}
	}

	if v.Effect == impact.EffectUpgrade {
		change.Acts = append(change.Acts, rollout.Act{Effect: impact.EffectUpgrade, Do: func(ctx context.Context) error {
			return t.upgrade(ctx, rebooted, v.now)
		}})
	}

	// After an upgrade, the configuration may need a reboot as well.
	change.Acts = append(change.Acts, rollout.Act{
		Effect: impact.EffectReboot,
		Needed: func(ctx context.Context) (bool, error) { return t.needsRebootNow(ctx, rebooted) },
		Do:     func(ctx context.Context) error { return t.reboot(ctx, rebooted) },
	})

	return change, nil
}

// talosNode is a node of Talos that is taken down.
type talosNode struct {
	*Changes
	nodeChange

	// served says that the control plane served before it was taken down.
	served bool
}

// CheckDisruption waits until the cluster can do without the node: no other member of etcd may be unhealthy, and of
// workers no more be unavailable than are allowed to.
func (t *talosNode) CheckDisruption(ctx context.Context, e impact.Effect) error {
	if t.node.Role == spec.RoleControlPlane && !t.served {
		t.served = t.watch(t.nodeChange).Serves(ctx)
	}

	return t.waitDisruption(ctx, t.nodeChange, e)
}

// Backup keeps etcd as the first of the control planes has it that answers.
func (t *talosNode) Backup(ctx context.Context) error {
	return t.BackupEtcd(ctx, t.others(t.nodeChange), t.credentials)
}

// Kubernetes waits for a control plane to speak with.
func (t *talosNode) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	return t.waitKubernetes(ctx, t.nodeChange)
}

// WaitRejoined waits until the node is ready for pods, and a control plane serves that did so before.
func (t *talosNode) WaitRejoined(ctx context.Context) error {
	// A lone control plane's API was away with it.
	kube, err := t.Kubernetes(ctx)
	if err != nil {
		return err
	}

	now, err := t.waitRunning(ctx, t.nodeChange)
	if err != nil {
		return err
	}

	if err := kube.WaitReady(ctx, t.Name, now.Boot, t.Plan.UpgradeTimeout, t.Progress); err != nil || !t.served {
		return err
	}

	watch := t.watch(t.nodeChange)
	watch.Since = time.Now()

	return watch.WaitServing(ctx)
}
