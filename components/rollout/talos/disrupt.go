package talos

import (
	"context"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// talosNode is a node of Talos that is taken down.
type talosNode struct {
	*Changes
	nodeChange
}

// CheckDisruption waits until the cluster can do without the node: no other member of etcd may be unhealthy, and of
// workers no more be unavailable than are allowed to.
func (t *talosNode) CheckDisruption(ctx context.Context, e impact.Effect) error {
	return rollout.WaitHealthy(ctx, t.Plan, t.Progress, "the cluster to do without "+t.Name,
		func(ctx context.Context) error {
			return t.checkDisruption(ctx, t.nodeChange, e)
		})
}

// Backup keeps etcd as the first of the control planes has it that answers.
func (t *talosNode) Backup(ctx context.Context) error {
	return t.backupEtcd(ctx, t.others(t.nodeChange), t.credentials)
}

// Kubernetes waits for a control plane to speak with.
func (t *talosNode) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	return t.waitKubernetes(ctx, t.nodeChange)
}

// WaitRejoined waits until the node is ready for pods, and a control plane serves.
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

	if err := kube.WaitReady(ctx, t.Name, now.Boot, t.Plan.UpgradeTimeout, t.Progress); err != nil ||
		t.node.Role != spec.RoleControlPlane {
		return err
	}

	return t.waitServing(ctx, t.nodeChange)
}

// waitRunning waits for a node that is on its way up or down: a run that was cut off may have sent it there.
func (r *Changes) waitRunning(ctx context.Context, c nodeChange) (now talosapi.System, err error) {
	err = wait.Until(ctx, r.Plan.UpgradeTimeout, r.Progress, func(ctx context.Context) (err error) {
		now, err = talosapi.Ask(ctx, c.Target, c.credentials)

		switch {
		case err != nil:
			return wait.For("%s to answer (%v)", c.Name, err)
		case !now.Running:
			return wait.For("%s to be up (it is %s)", c.Name, now.Stage)
		default:
			return nil
		}
	})

	return now, err
}

// checkDisruption says why the cluster cannot do without the node now.
func (r *Changes) checkDisruption(ctx context.Context, c nodeChange, effect impact.Effect) error {
	kube, err := kubernetes(ctx, r.others(c), c.credentials)
	if err != nil {
		return err
	}

	if c.node.Role == spec.RoleControlPlane {
		members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)
		if err != nil {
			return err
		}

		return etcd.CheckDisruption(members, c.Name, effect)
	}

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return err
	}

	return rollout.CheckWorkers(r.Plan, nodes, c.Name)
}
