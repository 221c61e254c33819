// Package components holds the Pulumi component resources that carry a plan out. They decide nothing: every name, VMID,
// address and step comes from package plan.
//
// # Ownership
//
//	TalosCluster
//	├── machine.Secrets                 the cluster's identity, kept in state
//	├── TalosNode, one per node
//	│   ├── vm.VirtualMachine
//	│   └── machine.ConfigurationApply  control planes first, then workers
//	└── cluster.Kubeconfig              after the control plane is up
//
// # Names
//
// A child's resource name is its component's name, the pool and the node's ordinal ("k3s-dev-worker-2-vm"), whatever the
// VM is called: a display name may change, an identity may not.
//
// # Gates
//
// What must be true between two steps and has no state of its own is a resource hook: a node answers before it is
// configured, the cluster is bootstrapped and its control plane up before the kubeconfig is fetched.
// Hooks have one name per kind and cluster, and are always registered.
package components

// Type tokens: part of every URN, so they never change.
const (
	// ClusterType is the token of TalosCluster.
	ClusterType = "talos-proxmox:index:TalosCluster"
	// NodeType is the token of TalosNode.
	NodeType = "talos-proxmox:index:TalosNode"
)
