package components

import (
	"context"
	"errors"
	"fmt"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// takeDown takes a node's pods off it, changes what it runs, and waits until all of it is back. Every step may be done
// already, by a run that was cut off.
func (r *talosRollout) takeDown(ctx context.Context, c changing) error {
	if _, err := r.settled(ctx, c); err != nil {
		return err
	}

	// What was found out before the turn began may have changed.
	v := r.judge(ctx, c)
	if v.refused != nil {
		return v.refused
	}

	if v.Effect == lifecycle.Unknown {
		return errors.New(v.Why)
	}

	kube, err := r.room(ctx, c, v.Effect)
	if err != nil {
		return err
	}

	if c.node.Role == plan.ControlPlane && (v.Effect.Down() || v.carries) {
		if err := r.backup.take(ctx, r.others(c), c.credentials); err != nil {
			return err
		}
	}

	if v.Effect.Down() {
		if err := r.restart(ctx, c, v, kube); err != nil {
			return err
		}
	}

	if err := r.reopen(ctx, c); err != nil || !v.carries {
		return err
	}

	return r.carryOver(ctx, c)
}

// reopen lets pods onto a node when it is ready for them.
func (r *talosRollout) reopen(ctx context.Context, c changing) error {
	// A lone control plane's API was away with it.
	kube, err := r.kubernetesBack(ctx, c)
	if err != nil {
		return err
	}

	now, err := r.settled(ctx, c)
	if err != nil {
		return err
	}

	if err := kube.WaitReady(ctx, c.Name, now.Boot, r.plan.UpgradeTimeout, r.say); err != nil {
		return err
	}

	return kube.Uncordon(ctx, c.Name)
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

// room waits until the cluster can do without the node: no other member of etcd may be unwell, and of workers no more be away
// than are allowed to.
func (r *talosRollout) room(ctx context.Context, c changing, effect lifecycle.Effect) (*kubeapi.Client, error) {
	var kube *kubeapi.Client

	err := rollout.WaitHealthy(ctx, r.plan, r.say, "the cluster to do without "+c.Name, func(ctx context.Context) error { return r.spare(ctx, c, effect, &kube) })
	if err != nil {
		return nil, err
	}

	return kube.WithRetry(r.plan.SettleTimeout, r.say, addressesOf(r.others(c))...)
}

func (r *talosRollout) spare(ctx context.Context, c changing, effect lifecycle.Effect, kube **kubeapi.Client) (err error) {
	if *kube, err = kubernetes(ctx, r.others(c), c.credentials); err != nil {
		return err
	}

	if c.node.Role == plan.ControlPlane {
		members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)
		if err != nil {
			return err
		}

		return lifecycle.Outage(members, c.Name, effect)
	}

	nodes, err := (*kube).Nodes(ctx)
	if err != nil {
		return err
	}

	return rollout.CheckWorkers(r.plan, nodes, c.Name)
}

// restart drains the node, and has it upgrade or reboot into its configuration. Right before either, the cluster is
// checked again. Kubernetes is not carried over by that.
func (r *talosRollout) restart(ctx context.Context, c changing, v verdict, kube *kubeapi.Client) (err error) {
	if v.carries {
		if c.wanted, err = uncarried(c, v.now.Configuration); err != nil {
			return err
		}
	}

	d := rollout.Drain{Kube: kube, Node: c.Name, Bound: r.plan.DrainTimeout, Say: r.say}
	if err := d.Run(ctx); err != nil {
		return err
	}

	if v.Effect == lifecycle.Upgrade {
		if err := r.recheck(ctx, d, c, lifecycle.Upgrade); err != nil {
			return err
		}

		if err := r.upgrade(ctx, c, v.now); err != nil {
			return err
		}

		// The configuration may need a reboot as well.
		reboot, err := r.needsReboot(ctx, c)
		if err != nil || !reboot {
			return err
		}
	}

	if err := r.recheck(ctx, d, c, lifecycle.Reboot); err != nil {
		return err
	}

	return r.reboot(ctx, c)
}

// recheck holds that the cluster can still do without a drained node.
func (r *talosRollout) recheck(ctx context.Context, d rollout.Drain, c changing, effect lifecycle.Effect) error {
	return d.Recheck(ctx, func(ctx context.Context) error {
		_, err := r.room(ctx, c, effect)

		return err
	})
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
			return talosapi.Lacking(ctx, c.Target, c.credentials, c.node.Role == plan.ControlPlane)
		}
	})

	return now, err
}

// kubernetesBack waits for a control plane to speak with.
func (r *talosRollout) kubernetesBack(ctx context.Context, c changing) (*kubeapi.Client, error) {
	var kube *kubeapi.Client

	err := wait.Until(ctx, r.plan.ReadyTimeout, r.say, func(context.Context) (_ string, err error) {
		if kube, err = kubernetes(ctx, r.others(c), c.credentials); err != nil {
			return err.Error(), nil //nolint:nilerr // it is waited for
		}

		return "", nil
	})
	if err != nil {
		return nil, err
	}

	return kube.WithRetry(r.plan.SettleTimeout, r.say, addressesOf(r.others(c))...)
}
