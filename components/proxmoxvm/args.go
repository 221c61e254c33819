package proxmoxvm

import (
	"net/netip"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// CloudInit is what a cloud-init drive states.
type CloudInit struct {
	// Address with the length of the network, and the router. Invalid: the machine asks DHCP.
	Address netip.Prefix
	Gateway netip.Addr
	// Nameservers may be empty.
	Nameservers []netip.Addr
	// UserData is the volume of the user data; nil: Proxmox VE writes its own.
	UserData pulumi.StringInput
}

// Args are the arguments of a VM, whatever runs in it.
type Args struct {
	Node plan.Node
	// Description is kept by the VM.
	Description string
	// Template is the VMID of the template to clone, Image the volume that is booted otherwise.
	Template     pulumi.IntInput
	Image        pulumi.StringInput
	CloudInit    *CloudInit
	Mapping      pulumi.StringInput
	AgentTimeout string
	// Rebalance moves the VM to its host.
	Rebalance bool
	// Replace replaces the VM once: when it becomes true, unless State says that this was done.
	Replace bool
	// Incomplete replaces it, if the state says that its creation failed.
	Incomplete bool
	// State is that of an existing VM.
	State State
	// Hooks of the VM; nil: none.
	Hooks *pulumi.ResourceHookBinding
	// After names what must be done before the VM is created or changed.
	After []pulumi.Resource
}

// CompanionHooks are the hooks of companions.
type CompanionHooks struct {
	// All companions have these; nil: none.
	All *pulumi.ResourceHookBinding
	// ApplyRules runs after the HA resource of a node was made or changed, where there are rules; nil: nothing does.
	ApplyRules *pulumi.ResourceHook
	// Mark of the HA resource of a node: another one has the rules applied again. nil: 0.
	Mark func(n plan.Node) int
	// HARules says that Proxmox VE has rules of high availability instead of groups.
	HARules bool
}
