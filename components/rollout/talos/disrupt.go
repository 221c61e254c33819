package talos

import (
	"context"
	"time"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

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
		t.served = t.serves(ctx, t.nodeChange, &watch{})
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

	return t.waitServing(ctx, t.nodeChange, &watch{since: time.Now()})
}

// waitDisruption waits until the cluster can do without the node.
func (r *Changes) waitDisruption(ctx context.Context, c nodeChange, e impact.Effect) error {
	return rollout.WaitHealthy(ctx, r.Plan, r.Progress, "the cluster to do without "+c.Name,
		func(ctx context.Context) error { return r.checkDisruption(ctx, c, e) })
}

// checkDisruption says why the cluster cannot do without the node now.
func (r *Changes) checkDisruption(ctx context.Context, c nodeChange, effect impact.Effect) error {
	kube, err := cluster.Kubernetes(ctx, r.others(c), c.credentials)
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
