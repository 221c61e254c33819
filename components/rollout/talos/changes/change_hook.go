package changes

import (
	"context"
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/machineconfig/running"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// Change runs before the configuration of a node is changed. Its error leaves the node as it is.
func (r *Changes) Change(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c, err := r.readChange(ctx, args)
	if err != nil {
		return err
	}

	if r.DryRun {
		return r.previewChange(ctx, c)
	}

	return r.changeNode(ctx, c)
}

// warnOfRunning warns once in a run of changes that need more than this update.
func (r *Changes) warnOfRunning(c nodeChange, found evaluation) {
	if found.Effect == impact.EffectUnknown || found.blocked != nil || c.wanted == nil {
		return
	}

	for _, warning := range running.Warnings(found.running.Configuration, c.wanted) {
		if _, again := r.warned.LoadOrStore(warning.String(), true); !again {
			r.Warn(warning.String())
		}
	}
}

// checkKubernetes refuses a version of Kubernetes that the node is not to get yet, and warns of removed flags and APIs.
func (r *Changes) checkKubernetes(ctx context.Context, c nodeChange, found evaluation) error {
	if !found.Kubernetes {
		return nil
	}

	if err := r.checkVersion(ctx, c); err != nil {
		return err
	}

	r.warnOfRemovedFeatures(ctx, c, found.running)

	return nil
}

// changeNode upgrades or reboots the node as needed, then sends the remaining configuration.
func (r *Changes) changeNode(ctx context.Context, c nodeChange) error {
	found, err := r.evaluateWhenReachable(ctx, c)
	if err != nil {
		return err
	}

	r.warnOfRunning(c, found)

	if err := r.checkKubernetes(ctx, c, found); err != nil {
		return err
	}

	if found.Effect.Down() || found.Kubernetes {
		err = r.rollout.Disrupt(ctx, c.node, &disruptiveUpdate{disruptedNode{Changes: r, nodeChange: c}},
			c.Name+" is not changed")
	} else if kube, unreachable := r.RetryingKubernetes(ctx, r.peersOf(c), c.credentials); unreachable == nil {
		// An interrupted run may have left the node cordoned. The change may be what repairs Kubernetes.
		err = kube.Uncordon(ctx, c.Name)
	}

	staged := r.Plan.Apply == spec.ApplyStaged

	switch {
	case err != nil:
		return err
	case found.Effect == impact.EffectNone && staged:
		return nil // what differs in the order of its text alone is not sent
	case found.Effect == impact.EffectNone:
		return r.checkServesAsWanted(ctx, c)
	case staged:
		return r.sendConfiguration(ctx, c)
	default:
		return r.sendRemaining(ctx, c)
	}
}

// sendRemaining gives a node what is left to change of its configuration, which needs no reboot any more.
func (r *Changes) sendRemaining(ctx context.Context, c nodeChange) error {
	// One that does not serve may be repaired by the change, and keeps no other from being repaired.
	if !r.healthWatch(c).Serves(ctx) {
		return r.sendConfiguration(ctx, c)
	}

	// One to which nothing is left to do is no canary.
	if _, settings, err := r.pendingSettings(ctx, c); err != nil {
		return err
	} else if len(settings) == 0 {
		return r.sendConfiguration(ctx, c)
	}

	return r.sendInTurn(ctx, c)
}

// previewChange says in a preview what will become of the node. A refusal is an error there, too; a node that does
// not answer is none.
func (r *Changes) previewChange(ctx context.Context, c nodeChange) error {
	found := r.evaluate(ctx, c)
	r.warnOfRunning(c, found)

	if err := r.checkKubernetes(ctx, c, found); err != nil {
		return err
	}

	if found.Effect.Down() && c.node.Role == spec.RoleControlPlane {
		found.Quorum = r.previewDisruption(ctx, c, found.Effect)
	}

	return errors.Join(r.Program.Preview(found.NodeImpact), found.blocked)
}

// disruptiveUpdate is the change of a node's configuration, or of the Talos or Kubernetes that it runs.
type disruptiveUpdate struct{ disruptedNode }

// Evaluate finds out what takes the node down: an upgrade, a reboot into its configuration, or both. Kubernetes goes to
// another version when the node is up.
func (u *disruptiveUpdate) Evaluate(ctx context.Context) (rollout.Work, error) {
	if _, err := u.waitRunning(ctx, u.nodeChange); err != nil {
		return rollout.Work{}, err
	}

	found := u.evaluate(ctx, u.nodeChange)
	if found.blocked != nil {
		return rollout.Work{}, found.blocked
	}

	if found.Effect == impact.EffectUnknown {
		return rollout.Work{}, errors.New(found.Why)
	}

	work := rollout.Work{Effect: found.Effect}
	if found.Kubernetes {
		work.AfterUncordon = func(ctx context.Context) error { return u.upgradeKubernetes(ctx, u.nodeChange) }
	}

	if !found.Effect.Down() {
		return work, nil
	}

	// That does not upgrade Kubernetes.
	keepingKubernetes := u.nodeChange
	if found.Kubernetes {
		var err error
		if keepingKubernetes.wanted, err = withRunningKubernetes(u.nodeChange, found.running.Configuration); err != nil {
			return work, err
		}
	}

	if found.Effect == impact.EffectUpgrade {
		work.DisruptiveSteps = append(work.DisruptiveSteps, rollout.DisruptiveStep{
			Effect: impact.EffectUpgrade,
			Do:     func(ctx context.Context) error { return u.upgradeTalos(ctx, keepingKubernetes, found.running) },
		})
	}

	// After an upgrade, the configuration may need a reboot as well.
	work.DisruptiveSteps = append(work.DisruptiveSteps, rollout.DisruptiveStep{
		Effect: impact.EffectReboot,
		Needed: func(ctx context.Context) (bool, error) { return u.needsRebootNow(ctx, keepingKubernetes) },
		Do:     func(ctx context.Context) error { return u.reboot(ctx, keepingKubernetes) },
	})

	return work, nil
}
