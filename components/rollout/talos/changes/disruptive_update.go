package changes

import (
	"context"
	"errors"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/rollout"
)

// disruptiveUpdate is the change of a node's configuration, or of the Talos or Kubernetes that it runs.
type disruptiveUpdate struct{ talosNode }

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
