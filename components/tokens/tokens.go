// Package tokens holds what the state knows resources by: type tokens and the endings of names. They are part of every
// URN, so they never change.
package tokens

// Component resources of this program.
const (
	TalosCluster  = "talos-proxmox:index:TalosCluster"
	TalosNode     = "talos-proxmox:index:TalosNode"
	GPUWorkerPool = "talos-proxmox:index:GPUWorkerPool"
	K3sCluster    = "talos-proxmox:index:K3sCluster"
	K3sNode       = "talos-proxmox:index:K3sNode"
)

// Resources of the engine and of the providers.
const (
	ProviderPrefix = "pulumi:providers:"
	Stack          = "pulumi:pulumi:Stack"
	Stash          = "pulumi:index:Stash"

	Proxmox         = "pulumi:providers:proxmoxve"
	VM              = "proxmoxve:VM/virtualMachine:VirtualMachine"
	Container       = "proxmoxve:CT/container:Container"
	Download        = "proxmoxve:Download/file:File"
	File            = "proxmoxve:Storage/file:File"
	PCIMapping      = "proxmoxve:Hardware/mapping/pci:Pci"
	HAResource      = "proxmoxve:HA/hAResource:HAResource"
	FirewallRules   = "proxmoxve:Network/firewallRules:FirewallRules"
	FirewallOptions = "proxmoxve:Network/firewallOptions:FirewallOptions"

	Secrets       = "talos:machine/secrets:Secrets"
	Schematic     = "talos:imageFactory/schematic:Schematic"
	Configuration = "talos:machine/configurationApply:ConfigurationApply"
	Kubeconfig    = "talos:cluster/kubeconfig:Kubeconfig"
)

// Endings of the names of resources that other code looks for by name.
const (
	VMSuffix            = "-vm"
	ConfigurationSuffix = "-config"
	IdentitySuffix      = "-identity"
	// JoinedSuffix ends the name of the record that a node of K3s has joined.
	JoinedSuffix = "-joined"
)
