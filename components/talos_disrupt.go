package components

import (
	"context"
	"errors"
	"fmt"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// talosNode is a node of Talos that is taken down.
type talosNode struct {
	*talosRollout
	changing
}

// CheckDisruption waits until the cluster can do without the node: no other member of etcd may be unhealthy, and of
// workers no more be unavailable than are allowed to.
func (t *talosNode) CheckDisruption(ctx context.Context, e lifecycle.Effect) error {
	return rollout.WaitHealthy(ctx, t.plan, t.say, "the cluster to do without "+t.Name, func(ctx context.Context) error {
		return t.spare(ctx, t.changing, e)
	})
}

// Backup keeps etcd as the first of the control planes has it that answers.
func (t *talosNode) Backup(ctx context.Context) error {
	return t.backup.take(ctx, t.others(t.changing), t.credentials)
}

// Kubernetes waits for a control plane to speak with.
func (t *talosNode) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	return t.kubernetesBack(ctx, t.changing)
}

// WaitRejoined waits until the node is ready for pods.
func (t *talosNode) WaitRejoined(ctx context.Context) error {
	// A lone control plane's API was away with it.
	kube, err := t.Kubernetes(ctx)
	if err != nil {
		return err
	}

	now, err := t.settled(ctx, t.changing)
	if err != nil {
		return err
	}

	return kube.WaitReady(ctx, t.Name, now.Boot, t.plan.UpgradeTimeout, t.say)
}

// talosChange is the change of a node's configuration, or of the Talos or Kubernetes that it runs.
type talosChange struct{ talosNode }

// Evaluate finds out what takes the node down: an upgrade, a reboot into its configuration, or both. Kubernetes goes to
// another version when the node is up.
func (t *talosChange) Evaluate(ctx context.Context) (rollout.Change, error) {
	if _, err := t.settled(ctx, t.changing); err != nil {
		return rollout.Change{}, err
	}

	v := t.judge(ctx, t.changing)
	if v.refused != nil {
		return rollout.Change{}, v.refused
	}

	if v.Effect == lifecycle.Unknown {
		return rollout.Change{}, errors.New(v.Why)
	}

	change := rollout.Change{Effect: v.Effect}
	if v.carries {
		change.Online = func(ctx context.Context) error { return t.carryOver(ctx, t.changing) }
	}

	if !v.Effect.Down() {
		return change, nil
	}

	// Kubernetes is not carried over by that.
	rebooted := t.changing
	if v.carries {
		var err error
		if rebooted.wanted, err = uncarried(t.changing, v.now.Configuration); err != nil {
			return change, err
		}
	}

	if v.Effect == lifecycle.Upgrade {
		change.Acts = append(change.Acts, rollout.Act{Effect: lifecycle.Upgrade, Do: func(ctx context.Context) error {
			return t.upgrade(ctx, rebooted, v.now)
		}})
	}

	// After an upgrade, the configuration may need a reboot as well.
	change.Acts = append(change.Acts, rollout.Act{
		Effect: lifecycle.Reboot,
		Needed: func(ctx context.Context) (bool, error) { return t.needsReboot(ctx, rebooted) },
		Do:     func(ctx context.Context) error { return t.reboot(ctx, rebooted) },
	})

	return change, nil
}

// settled waits for a node that is on its way up or down: a run that was cut off may have sent it there.
func (r *talosRollout) settled(ctx context.Context, c changing) (now talosapi.System, err error) {
	err = wait.Until(ctx, r.plan.UpgradeTimeout, r.say, func(ctx context.Context) (_ string, err error) {
		now, err = talosapi.Ask(ctx, c.Target, c.credentials)

		switch {
		case err != nil:
			return fmt.Sprintf("%s to answer (%v)", c.Name, err), nil
		case !now.Running:
			return fmt.Sprintf("%s to be up (it is %s)", c.Name, now.Stage), nil
		default:
			return "", nil
		}
	})

	return now, err
}

// spare says why the cluster cannot do without the node now.
func (r *talosRollout) spare(ctx context.Context, c changing, effect lifecycle.Effect) error {
	kube, err := kubernetes(ctx, r.others(c), c.credentials)
	if err != nil {
		return err
	}

	if c.node.Role == spec.RoleControlPlane {
		members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)
		if err != nil {
			return err
		}

		return lifecycle.Outage(members, c.Name, effect)
	}

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return err
	}

	return rollout.CheckWorkers(r.plan, nodes, c.Name)
}

// upgrade installs what the configuration wants to be installed.
func (r *talosRollout) upgrade(ctx context.Context, c changing, before talosapi.System) error {
	image, wanted := c.wanted.Machine().Install().Image(), machineconfig.System(c.wanted)
	r.say(fmt.Sprintf("%s upgrades from %s to %s", c.Name, before.System, wanted))

	if err := talosapi.Upgrade(ctx, c.Target, c.credentials, image, r.plan.UpgradeTimeout); err != nil {
		return err
	}

	now, err := r.back(ctx, c, before)
	if err != nil {
		return err
	}

	if (lifecycle.Change{Now: now.System, Wanted: wanted}).Upgrades() {
		return fmt.Errorf("it came back with %s, not with %s: its installer failed, or the new system did not come up; its console says which",
			now.System, wanted)
	}

	return nil
}

// reboot has the node boot with its configuration.
func (r *talosRollout) reboot(ctx context.Context, c changing) error {
	data, err := c.wanted.Bytes()
	if err != nil {
		return err
	}

	before, err := talosapi.Ask(ctx, c.Target, c.credentials)
	if err != nil {
		return err
	}

	r.say(c.Name + " reboots")

	if err := talosapi.ApplyAndReboot(ctx, c.Target, c.credentials, data); err != nil {
		return err
	}

	_, err = r.back(ctx, c, before)

	return err
}

// back waits until the node has booted again and what runs on it is up.
func (r *talosRollout) back(ctx context.Context, c changing, before talosapi.System) (talosapi.System, error) {
	var now talosapi.System

	err := wait.Until(ctx, r.plan.UpgradeTimeout, r.say, func(ctx context.Context) (_ string, err error) {
		now, err = talosapi.Ask(ctx, c.Target, c.credentials)

		switch {
		case err != nil:
			return fmt.Sprintf("%s to come back (%v)", c.Name, err), nil
		case now.Boot == before.Boot:
			return c.Name + " to go down", nil
		case !now.Running:
			return fmt.Sprintf("%s to be up (it is %s)", c.Name, now.Stage), nil
		default:
			return talosapi.Lacking(ctx, c.Target, c.credentials, c.node.Role == spec.RoleControlPlane)
		}
	})

	return now, err
}

// kubernetesBack waits for a control plane to speak with.
func (r *talosRollout) kubernetesBack(ctx context.Context, c changing) (*kubeapi.Client, error) {
	return rollout.WaitKubernetes(ctx, r.plan, r.say, func(ctx context.Context) (*kubeapi.Client, error) {
		return lasting(ctx, r.others(c), c.credentials, r.plan, r.say)
	})
}
