// Package components holds the Pulumi component resources that carry a plan out. They decide nothing: every name, VMID,
// address and step comes from package planner.
//
// # Ownership
//
//	TalosCluster
//	├── imagefactory.Schematic          what an image carries, where the factory makes it
//	├── download.File                   an image, one per host, or one for all where they share the datastore
//	├── machine.Secrets                 the cluster's identity, kept in state
//	├── Stash                           what the VMs of workers wait for
//	├── TalosNode, one per node
//	│   ├── imagefactory.Schematic, download.File, where the image holds the node's address
//	│   ├── vm.VirtualMachine
//	│   ├── network.FirewallRules, network.FirewallOptions, where firewalls are on
//	│   ├── ha.HAResource               where the node has a high-availability group
//	│   └── machine.ConfigurationApply  control planes first, then workers
//	├── GPUWorkerPool, one per GPU pool
//	│   ├── mapping.Pci                 lets an API token pass the GPU of a node
//	│   └── TalosNode                   as above
//	├── cluster.Kubeconfig              after the control plane is up; the record that there has been a bootstrap
//	└── Stash                           an empty cluster was accepted, while lifecycle.acceptEmptyCluster is set
//
// A cluster of K3s has its identity and its administrator's certificate in state, and nodes that set themselves up:
//
//	K3sCluster
//	├── Stash                           the identity of the cluster
//	├── Stash                           an administrator's certificate, renewed twice a year
//	├── Stash                           what the VMs of agents wait for
//	├── download.File                   a cloud image, one per host
//	├── mapping.Pci                     the GPU of a node, as above
//	├── K3sNode, one per node
//	│   ├── storage.File                its user data, a snippet
//	│   ├── vm.VirtualMachine
//	│   ├── network.FirewallRules, network.FirewallOptions, ha.HAResource, as above
//	│   └── Stash                       the node has joined
//	└── Stash                           which manifests Kubernetes has, where there are any
//
// # Names
//
// A child's resource name is its component's name, the pool and the node's ordinal ("k3s-dev-worker-2-vm"), whatever
// the VM is called: a display name may change, an identity may not. Images are called after the cluster and the host
// ("k3s-dev-image-pve"); one that only a pool has also after its content.
//
// # Hooks
//
// What must be true between two steps and has no state of its own is a resource hook: what is downloaded is an image, a
// VMID is free, a node answers and has its ISO file taken out before it is configured, the cluster is bootstrapped and
// its control plane up before the kubeconfig is fetched; a K3s node has joined before it counts as one. What takes a
// running node down, a change of it or of its VM, or its removal, is one, too: nodes go in turns, as
// rollout.Rollout.Disrupt lists it, and a preview says what becomes of them. Hooks have one name per kind and cluster,
// and are always registered.
package components

import "talos-proxmox/components/tokens"

// Type tokens: part of every URN, so they never change.
const (
	// ClusterType is the token of TalosCluster.
	ClusterType = tokens.TalosCluster
	// NodeType is the token of TalosNode.
	NodeType = tokens.TalosNode
	// GPUPoolType is the token of GPUWorkerPool.
	GPUPoolType = tokens.GPUWorkerPool
	// K3sClusterType is the token of K3sCluster.
	K3sClusterType = tokens.K3sCluster
	// K3sNodeType is the token of K3sNode.
	K3sNodeType = tokens.K3sNode
)
