package talos

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/lab/realkube"
)

// clusterState is what the lab knows of a cluster's Kubernetes without asking an API server over its network, and what
// it does there instead of a kubelet's silence: the objects that the lab's own API servers serve, or what real ones
// told last.
type clusterState interface {
	kube.NodeStates
	// HasNode tells whether a node of that name and identity is registered.
	HasNode(name string, uid types.UID) bool
	// RunningOn are copies of the pods that run on a node; NetworkPlugin is what has put a CNI configuration on it.
	RunningOn(node string) []*corev1.Pod
	NetworkPlugin(node string) string
	// SetAPIServers records which addresses serve the API.
	SetAPIServers(addresses []string, port int32)
}

var (
	_ clusterState = (*kube.Cluster)(nil)
	_ clusterState = (*realkube.Cluster)(nil)
)
