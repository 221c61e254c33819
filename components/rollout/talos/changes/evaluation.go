package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// evaluation is what a change does to a node, and what the node ran when that was found out.
type evaluation struct {
	impact.NodeImpact

	running talosapi.System
	blocked error
}

// evaluateAnswering evaluates a change as soon as the node answers.
func (r *Changes) evaluateAnswering(ctx context.Context, c nodeChange) (evaluation, error) {
	var found evaluation

	err := wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		found = r.evaluate(ctx, c)
		if found.Effect == impact.EffectUnknown {
			return cmp.Or(r.checkNotReset(ctx, c), wait.For("%s at %s: %s", c.Name, c.Address, found.Why))
		}

		return found.blocked
	})
	if err != nil {
		return found, fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return found, nil
}

// askAnswering asks a node what it runs as soon as it answers: a control plane that starts a component again may be too
// busy for one question.
func (r *Changes) askAnswering(
	ctx context.Context, t talosapi.Target, c talosapi.Credentials,
) (talosapi.System, error) {
	var now talosapi.System

	err := wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) (err error) {
		if now, err = talosapi.Ask(ctx, t, c); err != nil {
			return notAnswering(t, err)
		}

		return nil
	})

	return now, err
}

func notAnswering(t talosapi.Target, err error) error {
	return wait.For("%s at %s to answer (%v)", t.Name, t.Address, err)
}

// evaluate asks the node what it runs, and what it thinks of the configuration.
func (r *Changes) evaluate(ctx context.Context, c nodeChange) evaluation {
	transition := impact.Change{Apply: r.Plan.Apply}

	running, err := talosapi.Ask(ctx, c.Target, c.credentials)
	if err == nil && c.wanted == nil {
		err = errors.New("its new configuration is not known yet")
	}

	if err == nil {
		transition.Now, transition.Wanted = running.System, talosimage.System(c.wanted)
		transition.Now.Kubernetes = talosimage.System(running.Configuration).Kubernetes
		transition.Settings, err = impact.Settings(running.Configuration, c.wanted)

		if r.defaultInstaller(c.node) {
			// It holds no extensions, and nothing was said of those that the node runs with.
			transition.Wanted.Schematic = ""
		}
	}

	if err == nil && !transition.Upgrades() {
		// A system that is about to be replaced need not know what the next one does.
		transition.Reboot, err = r.needsReboot(ctx, c, running.Talos, transition.Settings)
	}

	var rejected talosapi.RejectedError
	if errors.As(err, &rejected) {
		transition.Rejected, err = rejected, nil
	}

	transition.Unreachable = err
	found := evaluation{running: running, NodeImpact: impact.NodeImpact{
		Node: c.Name, Pool: c.node.Pool, Role: string(c.node.Role),
		Now: transition.Now.String(), Wanted: transition.Wanted.String(),
		Settings: transition.Settings,
		Limits:   impact.Limits{MaxUnavailable: r.Plan.MaxUnavailable, Canary: r.Plan.Canary},
	}}

	var blocked error
	found.Effect, found.Why, blocked = transition.Evaluate()
	found.Kubernetes = err == nil && transition.Rejected == nil &&
		transition.Now.Kubernetes != transition.Wanted.Kubernetes && r.Plan.Apply != spec.ApplyStaged

	if err == nil && transition.Rejected == nil {
		blocked = errors.Join(blocked, r.checkRunning(c, running))
	}

	found.blocked = found.Refuse(blocked)

	return found
}

// checkRunning refuses what Talos accepts for a node that runs, and what would harm it later.
func (r *Changes) checkRunning(c nodeChange, running talosapi.System) error {
	err := machineconfig.CheckRunningEncryption(running.Configuration, c.wanted, running.Volumes, r.encryptionRemedy())

	if c.node.Role == spec.RoleControlPlane {
		err = errors.Join(err, machineconfig.CheckRunningNetwork(running.Configuration, c.wanted))
	}

	return err
}

// replaceable is how many control planes a cluster has of which one may leave.
const replaceable = 3

// encryptionRemedy says how the encryption of a cluster changes: with its nodes. Nodes that are replaced get no changed
// configuration before. The others would, so that all are replaced at once.
func (r *Changes) encryptionRemedy() string {
	remedy := "put the key, or the patch that sets it, back; or name all nodes of the cluster in lifecycle.replace in " +
		"the same update, none of which may be in the list already"

	if len(r.Plan.ControlPlanes()) < replaceable {
		remedy += "; with fewer than three control planes, add some with the former value before that"
	}

	return remedy
}

// defaultInstaller says whether a node is upgraded from an installer of which nothing was set.
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
	now, err := r.askAnswering(ctx, c.Target, c.credentials)
	if err != nil {
		return false, err
	}

	settings, err := impact.Settings(now.Configuration, c.wanted)
	if err != nil {
		return false, err
	}

	return r.needsReboot(ctx, c, now.Talos, settings)
}
