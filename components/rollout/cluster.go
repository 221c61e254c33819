package rollout

import (
	"context"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
)

// Cluster is what a rollout asks of the system that runs on a node, Talos or K3s, and of the node's peers.
type Cluster interface {
	// Evaluate says what is to be done to the node, now that it is its turn: what was found before may have changed, and a
	// run that was cut off may have done any of it.
	Evaluate(ctx context.Context) (Work, error)
	// CheckDisruption waits until the cluster can do without the node, for good if it is removed. Its error says why it
	// cannot.
	CheckDisruption(ctx context.Context, e impact.Effect) error
	// Backup keeps etcd as it is now.
	Backup(ctx context.Context) error
	// Kubernetes waits for a control plane that answers. The node itself is asked last.
	Kubernetes(ctx context.Context) (*kubeapi.Client, error)
	// WaitRejoined waits until the node does its work again, after all that was done to it.
	WaitRejoined(ctx context.Context) error
}

// System is what runs in the VMs of a cluster, Talos or K3s.
type System interface {
	// Restart is a node whose VM is to be restarted, as a rollout sees it.
	Restart(n plan.Node) Cluster
	// PreviewRestart warns of what would keep the node from being restarted as it is now, and says what is left of etcd
	// meanwhile.
	PreviewRestart(ctx context.Context, n plan.Node) (quorum string)
	// Kubernetes is that of whatever control plane answers.
	Kubernetes(ctx context.Context) (*kubeapi.Client, error)
	// EtcdMembers are the names of the nodes that etcd has members of. The members themselves are not asked.
	EtcdMembers(ctx context.Context, kube *kubeapi.Client) ([]string, error)
}
