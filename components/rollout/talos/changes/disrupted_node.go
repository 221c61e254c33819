package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// disruptedNode implements rollout.Node for one node of Talos.
type disruptedNode struct {
	*Changes
	nodeChange

	// servedBefore says that the control plane served before it was taken down.
	servedBefore bool
}

// WaitDisruptable waits until the cluster can do without the node: no other member of etcd may be unhealthy, and of
// workers no more be unavailable than are allowed to.
func (t *disruptedNode) WaitDisruptable(ctx context.Context, e impact.Effect) error {
	if t.node.Role == spec.RoleControlPlane && !t.servedBefore {
		t.servedBefore = t.healthWatch(t.nodeChange).Serves(ctx)
	}

	return t.waitDisruptable(ctx, t.nodeChange, e)
}

// Backup keeps etcd as the first of the control planes has it that answers.
func (t *disruptedNode) Backup(ctx context.Context) error {
	return t.BackupEtcd(ctx, t.peersOf(t.nodeChange), t.credentials)
}

// Kubernetes waits for a control plane to speak with.
func (t *disruptedNode) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	return t.waitKubernetes(ctx, t.nodeChange)
}

// WaitRejoined waits until the node is ready for pods, and a control plane serves that did so before.
func (t *disruptedNode) WaitRejoined(ctx context.Context) error {
	// A lone control plane's API was unavailable with it.
	kube, err := t.Kubernetes(ctx)
	if err != nil {
		return err
	}

	now, err := t.waitRunning(ctx, t.nodeChange)
	if err != nil {
		return err
	}

	if err := kube.WaitReady(ctx, t.Name, now.Boot, t.Plan.UpgradeTimeout, t.Progress); err != nil || !t.servedBefore {
		return err
	}

	watch := t.healthWatch(t.nodeChange)
	watch.Since = time.Now()

	return watch.WaitServing(ctx)
}

// waitDisruptable waits until the cluster can do without the node.
func (r *Changes) waitDisruptable(ctx context.Context, c nodeChange, e impact.Effect) error {
	return rollout.WaitHealthy(ctx, r.Plan, r.Progress, "the cluster to tolerate the outage of "+c.Name,
		func(ctx context.Context) error { return r.checkDisruption(ctx, c, e) })
}

// checkDisruption says why the cluster cannot do without the node now.
func (r *Changes) checkDisruption(ctx context.Context, c nodeChange, effect impact.Effect) error {
	kube, err := cluster.Kubernetes(ctx, r.peersOf(c), c.credentials)
	if err != nil {
		return err
	}

	if c.node.Role == spec.RoleControlPlane {
		members, err := talosapi.EtcdMembers(ctx, r.peersOf(c), c.credentials)
		if err != nil {
			return err
		}

		return r.CheckEtcd(members, c.Name, effect)
	}

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return err
	}

	return r.CheckWorkers(nodes, c.Name)
}

// previewDisruption warns of what would keep a control plane from being taken down as it is now, and says what is left
// of etcd meanwhile.
func (r *Changes) previewDisruption(ctx context.Context, c nodeChange, effect impact.Effect) (quorum string) {
	members, err := talosapi.EtcdMembers(ctx, r.peersOf(c), c.credentials)
	if err == nil {
		quorum = etcd.QuorumText(etcd.Voters(members))
		err = r.CheckEtcd(members, c.Name, effect)
	}

	// What this update sets up has joined by then.
	if err != nil && !rollout.IsWaitingForJoin(err) {
		r.Warn(fmt.Sprintf("in the current state of the cluster, %s would not be disrupted: %v", c.Name, err))
	}

	return quorum
}

// upgradeTalos installs what the configuration wants to be installed.
func (r *Changes) upgradeTalos(ctx context.Context, c nodeChange, before talosapi.System) error {
	image, wanted := c.wanted.Machine().Install().Image(), talosimage.System(c.wanted)
	r.Progress(fmt.Sprintf("%s upgrades from %s to %s", c.Name, before.System, wanted))

	rebooting, err := talosapi.Install(ctx, c.Target, c.credentials, image, r.Plan.UpgradeTimeout)
	if err == nil && !rebooting {
		err = r.rebootInstalled(ctx, c)
	}

	if err != nil {
		return err
	}

	now, err := r.waitBooted(ctx, c, before)
	if err != nil {
		return err
	}

	if (impact.Change{Now: now.System, Wanted: wanted}).Upgrades() {
		return fmt.Errorf("it came back with %s, not with %s: its installer failed, or the new system did not come up; its "+
			"console says which", now.System, wanted)
	}

	return nil
}

// rebootInstalled has a node boot into a system that was installed while it ran, which took its time: the cluster may
// not do without the node any more.
func (r *Changes) rebootInstalled(ctx context.Context, c nodeChange) error {
	if err := r.waitDisruptable(ctx, c, impact.EffectUpgrade); err != nil {
		return fmt.Errorf("it has installed %s and does not boot into it: %w", talosimage.System(c.wanted), err)
	}

	return talosapi.Reboot(ctx, c.Target, c.credentials)
}

// reboot has the node boot with its configuration.
func (r *Changes) reboot(ctx context.Context, c nodeChange) error {
	data, err := c.wanted.Bytes()
	if err != nil {
		return err
	}

	before, err := r.askWithRetry(ctx, c.Target, c.credentials)
	if err != nil {
		return err
	}

	r.Progress(c.Name + " reboots")

	if err := talosapi.ApplyAndReboot(ctx, c.Target, c.credentials, data); err != nil {
		return err
	}

	_, err = r.waitBooted(ctx, c, before)

	return err
}

// waitBooted waits until the node has booted again and what runs on it is up.
func (r *Changes) waitBooted(ctx context.Context, c nodeChange, before talosapi.System) (talosapi.System, error) {
	var now talosapi.System

	err := wait.Until(ctx, r.Plan.UpgradeTimeout, r.Progress, func(ctx context.Context) (err error) {
		now, err = talosapi.Ask(ctx, c.Target, c.credentials)

		switch {
		case err != nil:
			return wait.For("%s to come back (%v)", c.Name, err)
		case now.Boot == before.Boot:
			return wait.For("%s to go down", c.Name)
		case !now.Running:
			return wait.For("%s to be up (it is %s)", c.Name, now.Stage)
		default:
			return talosapi.CheckServices(ctx, c.Target, c.credentials, c.node.Role == spec.RoleControlPlane)
		}
	})

	return now, err
}

// sendConfiguration gives a node that runs its changed configuration, as the last thing before the provider does: to a
// node that has shown a certificate of this cluster, and to no other. What needs a reboot has had it by then.
func (r *Changes) sendConfiguration(ctx context.Context, c nodeChange) error {
	data, err := c.wanted.Bytes()
	if err != nil {
		return err
	}

	apply := talosapi.ApplyLive
	if r.Plan.Apply == spec.ApplyStaged {
		apply = talosapi.ApplyStaged
	}

	err = wait.Until(ctx, r.Plan.NodeTimeout, r.Progress, func(ctx context.Context) error {
		err := apply(ctx, c.Target, c.credentials, data)

		switch {
		case err == nil:
			return nil
		case errors.As(err, new(talosapi.RejectedError)):
			return err
		default:
			return cmp.Or(r.checkNotReset(ctx, c), wait.For("%v", err))
		}
	})
	if err != nil {
		return fmt.Errorf("%s is not changed: %w", c.Name, err)
	}

	return nil
}
