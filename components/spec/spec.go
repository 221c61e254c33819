// Package spec is what the operator writes: the types of the configuration, their JSON names, and the defaults. It
// decides and checks nothing.
package spec

// Spec is what the operator asks for. Its JSON names are the keys of the stack configuration, the comments of its
// fields are what editors show for them, and the paths of problems are paths in it. Absent values are zero values or
// nil pointers; SetDefaults fills in the defaults that the tags name.
type Spec struct {
	// Environment of the stack. Sets the enforcement level of the policy pack, and the defaults of firewall.enabled
	// and of the protection of control planes.
	Environment Environment `json:"environment,omitempty" jsonschema:"default=lab,enum=lab,enum=production"`
	// Connection to Proxmox VE, and the resources to use.
	Proxmox Proxmox `json:"proxmox"`
	// The Kubernetes cluster.
	Cluster Cluster `json:"cluster"`
	// Settings of a cluster of kind k3s.
	K3s *K3s `json:"k3s,omitempty"`
	// Boot source of the nodes.
	Image Image `json:"image,omitempty"`
	// The network of the nodes.
	Network Network `json:"network"`
	// Selection of the host of a new VM.
	Placement Placement `json:"placement,omitempty"`
	// Size and options of the VMs; pools and nodes override them.
	Defaults VMSpec `json:"defaults,omitempty"`
	// Pools of nodes with the same role and shape, by name.
	Pools map[string]Pool `json:"pools"`
	// Membership of the nodes in a tailnet. Absent: none.
	Tailscale *Tailscale `json:"tailscale,omitempty"`
	// Firewalls of Proxmox VE and of Talos.
	Firewall Firewall `json:"firewall,omitempty"`
	// Timeouts, upgrades, replacement and removal of nodes.
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
	// Outputs in addition to the contract.
	Outputs Outputs `json:"outputs,omitempty"`

	// Provided says which secrets the operator has set. The secrets themselves are kept elsewhere.
	Provided SecretsProvided `json:"-"`
}

// Environment is "lab" or "production".
type Environment string

// The environments.
const (
	EnvironmentLab        Environment = "lab"
	EnvironmentProduction Environment = "production"
)

// SecretsProvided says which secret keys are set.
type SecretsProvided struct {
	// RootPassword: the login is root@pam with a password, not an API token.
	RootPassword bool
	// SSHKey, TailscaleKey and MachineSecrets: the keys sshPrivateKey, tailscaleAuthKey and machineSecrets.
	SSHKey, TailscaleKey, MachineSecrets bool
	// BackupPassphrase: the key backupPassphrase.
	BackupPassphrase bool
	// CSIToken, CCMToken, SecretManifests and RegistryLogins: the keys csiToken and so on.
	CSIToken, CCMToken, SecretManifests, RegistryLogins bool
	// GitOpsKey and AgeKey: the keys gitOpsKey and ageKey.
	GitOpsKey, AgeKey bool
	// K3sToken: the key k3sToken.
	K3sToken bool
	// K3sIdentity: the key k3sIdentity.
	K3sIdentity bool
}

// Tailscale makes nodes members of a tailnet. Its key is tailscaleAuthKey.
type Tailscale struct {
	// Pools whose nodes join. Absent: all.
	Pools []string `json:"pools,omitempty"`
	// URL of a Headscale server. Absent: Tailscale's own.
	LoginServer string `json:"loginServer,omitempty"`
	// Advertise cluster.endpoint.address from the control planes as a subnet route, which you approve in the tailnet.
	// Other machines of the tailnet then reach the Kubernetes API. Absent: false.
	AdvertiseEndpoint bool `json:"advertiseEndpoint,omitempty"`
}

// Firewall closes what the nodes do not need.
type Firewall struct {
	// Configure the firewalls. Absent: true in production, false in a lab.
	Enabled *bool `json:"enabled,omitempty"`
	// Networks that may reach the Talos and Kubernetes APIs in addition to the nodes, and SSH of K3s nodes. They
	// must include the machine that runs pulumi. Absent: network.cidr.
	APIFrom []string `json:"apiFrom,omitempty"`
	// Additional open ports, such as those of an ingress controller.
	Open []IngressRule `json:"open,omitempty"`
}

// IngressRule lets more in to nodes than Talos and Kubernetes need.
type IngressRule struct {
	// Name of the rule, a DNS label.
	Name string `json:"name"`
	// Ports, for example 443 or 30000-32767.
	Ports Range `json:"ports"`
	// Protocol of the ports.
	Protocol Protocol `json:"protocol,omitempty" jsonschema:"default=tcp,enum=tcp,enum=udp"`
	// Source networks, for example 0.0.0.0/0. Absent: network.cidr.
	From []string `json:"from,omitempty"`
	// Pools that the rule applies to. Absent: all.
	Pools []string `json:"pools,omitempty"`
}

// Protocol of what comes in.
type Protocol string

// The protocols.
const (
	ProtocolTCP  Protocol = "tcp"
	ProtocolUDP  Protocol = "udp"
	ProtocolICMP Protocol = "icmp"
)

// Outputs are what the stack leaves for others in addition to the contract.
type Outputs struct {
	// Files to write on the operator's machine. Absent: none.
	Files *Files `json:"files,omitempty"`
	// Name of a pool of workers whose machine configuration is the secret output talos_worker_configuration, for workers
	// that others create, such as an autoscaler. Absent: no such output.
	WorkerConfiguration string `json:"workerConfiguration,omitempty"`
	// Add the outputs control_plane_ips, worker_ips, gpu_worker_ips and their VMID and BDF lists.
	Legacy bool `json:"legacy,omitempty" jsonschema:"default=false"`
}

// Files are written when the cluster is up, readable for their owner only.
type Files struct {
	// Directory, relative to the project, for the files of this cluster only. It must be ignored by git.
	Dir string `json:"dir,omitempty" jsonschema:"default=./talos"`
	// Files to write.
	Write []File `json:"write" jsonschema:"enum=talosconfig,enum=kubeconfig,enum=control-plane.yaml,enum=worker.yaml,enum=secrets.yaml"`
}

// File is the name of a file that can be written.
type File string
