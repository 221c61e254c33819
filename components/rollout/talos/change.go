package talos

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
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
		return r.sendLive(ctx, c)
	}
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
		r.Warn(fmt.Sprintf("as it is now, %s would not be taken down: %v", c.Name, err))
	}

	return quorum
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
