package changes

import (
	"context"
	"fmt"
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

	// servedBefore says that the control plane served before it was taken down.
	servedBefore bool
}

// CheckDisruption waits until the cluster can do without the node: no other member of etcd may be unhealthy, and of
// workers no more be unavailable than are allowed to.
func (t *talosNode) CheckDisruption(ctx context.Context, e impact.Effect) error {
	if t.node.Role == spec.RoleControlPlane && !t.servedBefore {
		t.servedBefore = t.healthWatch(t.nodeChange).Serves(ctx)
	}

	return t.waitDisruption(ctx, t.nodeChange, e)
}

// Backup keeps etcd as the first of the control planes has it that answers.
func (t *talosNode) Backup(ctx context.Context) error {
	return t.BackupEtcd(ctx, t.peersOf(t.nodeChange), t.credentials)
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

	if err := kube.WaitReady(ctx, t.Name, now.Boot, t.Plan.UpgradeTimeout, t.Progress); err != nil || !t.servedBefore {
		return err
	}

	watch := t.healthWatch(t.nodeChange)
	watch.Since = time.Now()

	return watch.WaitServing(ctx)
}

// waitDisruption waits until the cluster can do without the node.
func (r *Changes) waitDisruption(ctx context.Context, c nodeChange, e impact.Effect) error {
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
	if err != nil && !rollout.IsAwaited(err) {
		r.Warn(fmt.Sprintf("in the current state of the cluster, %s would not be disrupted: %v", c.Name, err))
	}

	return quorum
}
