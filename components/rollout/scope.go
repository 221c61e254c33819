package rollout

import (
	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// Program is the run of the Pulumi program that operations belong to.
type Program struct {
	// DryRun says that it is a preview.
	DryRun bool
	// Progress is shown while an operation runs, and does not stay in the log.
	Progress wait.Reporter
	// Warn shows what is no error. Where the program has ended already, nothing shows it.
	Warn func(message string)
	// Preview shows what a preview has found out about a node, to people and to 'ops impact'.
	Preview func(impact.NodeImpact) error
}

// Inventory is what Proxmox VE had when the run began; *preflight.Report implements it.
type Inventory interface {
	// Exists says that the VM of a node is known to exist.
	Exists(n plan.Node) bool
	// AbsentVMIDs are the VMIDs of nodes that had no VM; nil: Proxmox VE did not answer.
	AbsentVMIDs() map[int]bool
	// VM is the VM that has a VMID of the plan.
	VM(vmid int) (vmidentity.Found, bool)
}

// Scope is what all operations on the nodes of one cluster know.
type Scope struct {
	Program

	Plan *plan.Plan
	// Inventory is what Proxmox VE had when the run began.
	Inventory Inventory
	// Addresses of nodes, as they become known.
	Addresses *proxmoxvm.AddressBook
	// Identities tell the cluster's VMs from others.
	Identities *vmidentity.Identities
	// Limiter is shared by all that take a running node down.
	Limiter *Limiter
	// Destroying says that the run destroys the cluster.
	Destroying bool
}
