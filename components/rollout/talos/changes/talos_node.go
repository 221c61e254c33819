package changes

import (
	"context"
	"time"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/spec"
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
