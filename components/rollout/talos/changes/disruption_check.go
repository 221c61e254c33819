package changes

import (
	"context"
	"fmt"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

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
