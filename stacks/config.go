package stacks

import (
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// Config is one stack's configuration. Its JSON names are the keys below the project's namespace, and the source of the
// JSON Schema that editors complete from. Secrets are top-level keys of their own.
type Config struct {
	// Environment is "lab" when absent.
	Environment plan.Environment `json:"environment,omitempty" jsonschema:"description=What the stack is for; sets the strength of the policy pack.,default=lab,enum=lab,enum=production"`
	Proxmox     Proxmox          `json:"proxmox" jsonschema:"description=Where Proxmox VE is and what of it may be used."`
	// ProxmoxTokenSecret belongs to proxmox.tokenId.
	ProxmoxTokenSecret string `json:"proxmoxTokenSecret,omitempty" jsonschema:"description=Secret of the API token. Set it with --secret."`
	// ProxmoxPassword belongs to proxmox.username.
	ProxmoxPassword string               `json:"proxmoxPassword,omitempty" jsonschema:"description=Password of the user. Set it with --secret."`
	Cluster         plan.Cluster         `json:"cluster" jsonschema:"description=The Kubernetes cluster."`
	Image           plan.Image           `json:"image,omitempty" jsonschema:"description=Where the first boot of a node comes from."`
	Network         plan.Network         `json:"network" jsonschema:"description=The network of the nodes."`
	Defaults        plan.Shape           `json:"defaults,omitempty" jsonschema:"description=Size and kind of the VMs; a pool may say otherwise."`
	Pools           map[string]plan.Pool `json:"pools" jsonschema:"description=Nodes of one role and shape\\, by the pool's name."`
	Lifecycle       plan.Lifecycle       `json:"lifecycle,omitempty" jsonschema:"description=Bounds of the program's own waits."`
}

// Proxmox is where Proxmox VE is, how to log in, and what may be used of it.
type Proxmox struct {
	// Endpoint is "https://host:8006"; a trailing /api2/json is accepted.
	Endpoint string `json:"endpoint" jsonschema:"description=URL of the API\\, for example https://pve.lan:8006."`
	// Insecure accepts any server certificate; false when absent.
	Insecure bool `json:"insecure,omitempty" jsonschema:"description=Accept any server certificate.,default=false"`
	// TokenID is "user@realm!name".
	TokenID string `json:"tokenId,omitempty" jsonschema:"description=API token\\, user@realm!name. Its secret is proxmoxTokenSecret."`
	// Username is "user@realm"; use it instead of a token.
	Username string       `json:"username,omitempty" jsonschema:"description=User instead of an API token\\, user@realm. Its password is proxmoxPassword."`
	Hosts    []plan.Host  `json:"hosts" jsonschema:"description=Hosts that VMs may run on. Their order breaks ties."`
	Storage  plan.Storage `json:"storage,omitempty" jsonschema:"description=Datastores."`
}

// Spec is the part of the configuration that is planned.
func (c Config) Spec() plan.Spec {
	return plan.Spec{
		Environment: c.Environment, Hosts: c.Proxmox.Hosts, Storage: c.Proxmox.Storage, Cluster: c.Cluster, Image: c.Image,
		Network: c.Network, Defaults: c.Defaults, Pools: c.Pools, Lifecycle: c.Lifecycle,
	}
}

// Access is how Proxmox VE is reached.
func (c Config) Access() proxmoxapi.Access {
	return proxmoxapi.Access{
		Endpoint: c.Proxmox.Endpoint, Insecure: c.Proxmox.Insecure,
		TokenID: c.Proxmox.TokenID, TokenSecret: c.ProxmoxTokenSecret,
		Username: c.Proxmox.Username, Password: c.ProxmoxPassword,
	}
}
