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

// Endings of the names of a cluster's resources.
const (
	SecretsSuffix    = "-secrets"
	KubeconfigSuffix = "-kubeconfig"
	// ContractSuffix ends the name of the record of the version that an imported cluster was imported with.
	ContractSuffix = "-contract"
	// CreationOrderSuffix ends the name of what the VMs of workers wait for.
	CreationOrderSuffix = "-precedence"
	// EmptySuffix ends the name of the record that an empty cluster was accepted.
	EmptySuffix = "-empty"

	// Those of K3s: the cluster's identity, the administrator's certificate, and which manifests Kubernetes has.
	IdentitySuffix      = "-identity"
	AdministratorSuffix = "-administrator"
	ManifestsSuffix     = "-manifests"
)

// Endings of the names of a node's resources. Those of images are a cluster's and a pool's, too.
const (
	VMSuffix              = "-vm"
	ImageSuffix           = "-image"
	SchematicSuffix       = "-schematic"
	GPUSuffix             = "-gpu"
	HASuffix              = "-ha"
	FirewallRulesSuffix   = "-rules"
	FirewallOptionsSuffix = "-firewall"
	ConfigurationSuffix   = "-config"
	UserDataSuffix        = "-user-data"
	// JoinedSuffix ends the name of the record that a node of K3s has joined.
	JoinedSuffix = "-joined"
)
