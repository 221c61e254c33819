package k3s

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// clusterNode is a node of K3s that is taken down.
type clusterNode struct {
	*Cluster

	node plan.Node
}

// CheckDisruption waits until the cluster can do without the node.
func (k clusterNode) CheckDisruption(ctx context.Context, e impact.Effect) error {
	_, err := k.waitHealthy(ctx, e)

	return err
}

// nodeStatus is a node as Kubernetes has it: whether a server has answered at last, whether it is there, and how it is.
type nodeStatus struct {
	kubeapi.Node
	answered, registered bool
}

func (k clusterNode) waitHealthy(ctx context.Context, e impact.Effect) (status nodeStatus, err error) {
	err = rollout.WaitHealthy(ctx, k.Plan, k.Progress, "the cluster to tolerate the outage of "+k.node.Name,
		func(ctx context.Context) (err error) {
			status, err = k.checkStatus(ctx, k.node, e)

			return err
		})

	return status, err
}

// Backup keeps etcd as it is now.
func (k clusterNode) Backup(ctx context.Context) error { return k.backupEtcd(ctx, k.node.Name) }

// Kubernetes waits for a server that answers.
func (k clusterNode) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	return rollout.WaitKubernetes(ctx, k.Plan, k.Progress, func(ctx context.Context) (*kubeapi.Client, error) {
		kube, err := k.kubernetesAskingLast(ctx, k.node.Name)
		if err != nil {
			return nil, err
		}

		return kube.WithRetry(k.Plan.SettleTimeout, k.Progress, k.serverAddresses()...)
	})
}

// isOnlyNode says that the node is all there is: its pods have no other place.
func (k clusterNode) isOnlyNode() bool { return len(k.Plan.Nodes()) == 1 }

// checkStatus says how a node is, and why the cluster cannot do without it, or why that is not known.
func (c *Cluster) checkStatus(ctx context.Context, n plan.Node, e impact.Effect) (status nodeStatus, err error) {
	kube, err := c.kubernetesAskingLast(ctx, n.Name)
	if err != nil {
		return status, err
	}

	status.answered = true

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return status, err
	}

	if i := slices.IndexFunc(nodes, func(found kubeapi.Node) bool { return found.Name == n.Name }); i >= 0 {
		status.Node, status.registered = nodes[i], true
	}

	return status, c.checkDisruption(ctx, kube, nodes, status, n, e)
}

// checkDisruption says why the cluster cannot do without the node now. For an upgrade, servers count that are planned
// and that Kubernetes does not know.
func (c *Cluster) checkDisruption(
	ctx context.Context, kube *kubeapi.Client, nodes []kubeapi.Node, status nodeStatus, n plan.Node, e impact.Effect,
) error {
	if n.Role != spec.RoleControlPlane {
		return c.CheckWorkers(nodes, n.Name)
	}

	members, err := c.votingServers(ctx, kube, nodes)
	if err != nil {
		return err
	}

	if status.registered && !status.Ready {
		// Of a server without an address, Kubernetes is believed: it may be what the quorum needs.
		err = etcd.CanStop(members, n.Name)
	} else {
		c.markWithoutAddress(members)

		if err = c.checkLeaving(members, n.Name); err == nil {
			err = c.CheckEtcd(members, n.Name, impact.EffectReboot)
		}
	}

	if err != nil {
		return err
	}

	servers := len(c.Plan.ControlPlanes())
	if e != impact.EffectUpgrade || servers == 1 {
		return nil
	}

	ready := 0

	for _, m := range members {
		if m.Name != n.Name && m.Problem == "" {
			ready++
		}
	}

	if need := etcd.QuorumSize(servers); ready < need {
		return spec.Blocked(
			fmt.Sprintf("etcd needs %d other servers that are ready, and %d are", need, ready),
			"repair the others first, then run 'pulumi up' again",
		)
	}

	return nil
}

// checkLeaving says which server that has left the plan is not healthy. It is removed at the end of an update, and
// counts for the quorum until then.
func (c *Cluster) checkLeaving(members []etcd.Member, name string) error {
	for _, m := range members {
		if m.Name == name || m.Problem == "" || c.isPlannedServer(m.Name) {
			continue
		}

		return spec.Blocked(
			fmt.Sprintf("%s is no longer in the plan, but still a member of etcd, and not healthy (%s)", m, m.Problem),
			"remove it in an update of its own: undo the other changes, run 'pulumi up', then make the other "+
				"changes again; or, if it has no VM any more, delete its node ('kubectl delete node "+m.Name+"')",
		)
	}

	return nil
}
