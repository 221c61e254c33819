package stacks

import (
	"os"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// Config is one stack's configuration. Its JSON names are the keys below the project's namespace; they and the comments
// here and in package plan are the source of the JSON Schema that editors complete from. Secrets are keys of their own.
type Config struct {
	// Environment of the stack. Sets the enforcement level of the policy pack, and the defaults of firewall.enabled
	// and of the protection of control planes.
	Environment plan.Environment `json:"environment,omitempty" jsonschema:"default=lab,enum=lab,enum=production"`
	// Connection to Proxmox VE, and the resources to use.
	Proxmox Proxmox `json:"proxmox"`
	// Secret of the API token. Set it with --secret.
	ProxmoxTokenSecret string `json:"proxmoxTokenSecret,omitempty"`
	// Password of the user. Set it with --secret.
	ProxmoxPassword string `json:"proxmoxPassword,omitempty"`
	// Private key of the SSH login to the hosts. Set it with --secret.
	SSHPrivateKey string `json:"sshPrivateKey,omitempty"`
	// The Kubernetes cluster.
	Cluster plan.Cluster `json:"cluster"`
	// Settings of a cluster of kind k3s.
	K3s *plan.K3s `json:"k3s,omitempty"`
	// Token that K3s servers join with; it cannot change. Absent: one is generated and kept in the state. Set it
	// with --secret.
	K3sToken string `json:"k3sToken,omitempty"`
	// A Talos secrets bundle (talosctl gen secrets) to import, instead of generating one. Set it with --secret.
	MachineSecrets string `json:"machineSecrets,omitempty"`
	// Boot source of the nodes.
	Image plan.Image `json:"image,omitempty"`
	// The network of the nodes.
	Network plan.Network `json:"network"`
	// Selection of the host of a new VM.
	Placement plan.Placement `json:"placement,omitempty"`
	// Size and options of the VMs; pools and nodes override them.
	Defaults plan.Shape `json:"defaults,omitempty"`
	// Pools of nodes with the same role and shape, by name.
	Pools map[string]plan.Pool `json:"pools"`
	// Membership of the nodes in a tailnet. Absent: none.
	Tailscale *plan.Tailscale `json:"tailscale,omitempty"`
	// Key that lets nodes join the tailnet. Set it with --secret. HEADSCALE_AUTH_KEY in the environment takes
	// precedence.
	TailscaleAuthKey string `json:"tailscaleAuthKey,omitempty"`
	// Firewalls of Proxmox VE and of Talos.
	Firewall plan.Firewall `json:"firewall,omitempty"`
	// Timeouts, upgrades, replacement and removal of nodes.
	Lifecycle plan.Lifecycle `json:"lifecycle,omitempty"`
	// Outputs in addition to the contract.
	Outputs plan.Outputs `json:"outputs,omitempty"`

	// Dir is where paths of the configuration begin, the project's directory; the working directory when empty.
	Dir string `json:"-"`
	// Destroying says that the run destroys the stack, by 'ops run destroy'.
	Destroying bool `json:"-"`
}

// Proxmox is where Proxmox VE is, how to log in, and what may be used of it.
type Proxmox struct {
	// URL of the API, for example https://pve.lan:8006. A trailing /api2/json is accepted.
	Endpoint string `json:"endpoint"`
	// Accept any server certificate.
	Insecure bool `json:"insecure,omitempty" jsonschema:"default=false"`
	// API token, user@realm!name. Its secret is proxmoxTokenSecret.
	TokenID string `json:"tokenId,omitempty"`
	// User instead of an API token, user@realm. Its password is proxmoxPassword.
	Username string `json:"username,omitempty"`
	// Hosts that VMs may run on. Their order breaks ties.
	Hosts []plan.Host `json:"hosts"`
	// Datastores.
	Storage plan.Storage `json:"storage,omitempty"`
	// SSH login to the hosts, only for image.factory.format disk and for cluster.kind k3s.
	SSH *plan.SSH `json:"ssh,omitempty"`
}

// Spec is the part of the configuration that is planned. It holds no secret.
func (c Config) Spec() plan.Spec {
	return plan.Spec{
		Environment: c.Environment, Hosts: c.Proxmox.Hosts, Storage: c.Proxmox.Storage, SSH: c.Proxmox.SSH,
		Cluster: c.Cluster, K3s: c.K3s, Image: c.Image, Network: c.Network, Placement: c.Placement, Defaults: c.Defaults, Pools: c.Pools,
		Tailscale: c.Tailscale, Firewall: c.Firewall, Lifecycle: c.Lifecycle, Outputs: c.Outputs,
		Given: plan.Secrets{
			RootPassword: c.Proxmox.Username == "root@pam" && c.ProxmoxPassword != "", SSHKey: c.SSHPrivateKey != "",
			TailscaleKey: c.TailscaleAuthKey != "", MachineSecrets: c.MachineSecrets != "",
			K3sToken: c.K3sToken != "",
		},
	}
}

// offlineVariable keeps previews from asking Proxmox VE.
const offlineVariable = "TALOS_PROXMOX_OFFLINE"

func offline() string {
	if os.Getenv(offlineVariable) == "" {
		return ""
	}

	return offlineVariable + " is set"
}

// Access is how Proxmox VE is reached.
func (c Config) Access() proxmoxapi.Access {
	return proxmoxapi.Access{
		Endpoint: c.Proxmox.Endpoint, Insecure: c.Proxmox.Insecure,
		TokenID: c.Proxmox.TokenID, TokenSecret: c.ProxmoxTokenSecret,
		Username: c.Proxmox.Username, Password: c.ProxmoxPassword, Offline: offline(),
	}
}
