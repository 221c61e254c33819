// Package vmupdate does, before a VM is updated, what the provider does not, or not well.
package vmupdate

import (
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// Hooks do, before a VM is updated, what the provider does not, or not well. Each thing is done only to a VM that
// has shown its UUID immediately before. They run in previews, too, and say there what they would do.
type Hooks struct {
	Program    *pulumi.Context
	Plan       *plan.Plan
	Proxmox    proxmoxvm.Proxmox
	Identities *vmidentity.Identities
	Progress   wait.Reporter
	// Nodes of the plan, by the name of their VM.
	Nodes map[string]plan.Node
	// CheckPermissions checks that the credentials may do all of an update, with these properties of the VM that
	// ApplyOnline changes.
	CheckPermissions func(args *pulumi.ResourceHookArgs, online []string) error
	// Weights are the CPU weights that VMs had before their update, by VMID, where the plan states none.
	Weights *sync.Map
}

// inUpdates is an error of Proxmox VE in updates. A preview has said that it cannot be reached.
func (u Hooks) inUpdates(err error) error {
	if u.Program.DryRun() {
		return nil
	}

	return err
}
