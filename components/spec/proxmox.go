package spec

// Plus adds resources.
func (a Resources) Plus(b Resources) Resources {
	return Resources{a.VCPU + b.VCPU, a.MemoryMiB + b.MemoryMiB}
}

// Minus subtracts resources; the result may be negative.
func (a Resources) Minus(b Resources) Resources {
	return Resources{a.VCPU - b.VCPU, a.MemoryMiB - b.MemoryMiB}
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
	Hosts []Host `json:"hosts"`
	// Datastores.
	Storage Storage `json:"storage,omitempty"`
	// SSH login to the hosts, only for image.factory.format disk and for cluster.kind k3s.
	SSH *SSH `json:"ssh,omitempty"`
}

// Host is one Proxmox VE host (Proxmox calls it a node; here a node is always a Talos machine).
type Host struct {
	// Name of the host in Proxmox VE.
	Name string `json:"name"`
	// Resources of the host for VMs. Absent: unlimited.
	Capacity *Resources `json:"capacity,omitempty"`
	// Part of the capacity to leave unused, instead of placement.reserve.
	Reserve *Resources `json:"reserve,omitempty"`
}

// Resources are the two things that placement counts.
type Resources struct {
	// Virtual CPUs.
	VCPU int `json:"vcpu,omitempty" jsonschema:"minimum=0,maximum=1000000"`
	// Memory in MiB.
	MemoryMiB int `json:"memoryMiB,omitempty" jsonschema:"minimum=0,maximum=1000000000"`
}

// Storage names datastores.
type Storage struct {
	// Datastore of VM disks.
	Disks string `json:"disks,omitempty" jsonschema:"default=local-lvm"`
	// Datastore of downloaded ISO files and disk images.
	Images string `json:"images,omitempty" jsonschema:"default=local"`
	// Datastore of the user data of K3s nodes. It must allow snippets; a VM that may move needs a datastore that
	// its hosts share. A change applies to new nodes.
	Snippets string `json:"snippets,omitempty" jsonschema:"default=local"`
}

// SSH is the login to the hosts that the import of disk images and the user data of K3s nodes need. Its key is
// sshPrivateKey.
type SSH struct {
	// User on the hosts: root, or on Proxmox VE 8 one that may use sudo without a password.
	Username string `json:"username"`
	// Port of the SSH server.
	Port int `json:"port,omitempty" jsonschema:"default=22,minimum=1,maximum=65535"`
	// Address of each host, by name. Absent: the address that Proxmox VE reports.
	Addresses map[string]string `json:"addresses,omitempty"`
	// Public host key of each host, by name, as in the last two columns of known_hosts: ssh-ed25519 AAAA. It is compared
	// before anything is created, and needs the host's address in addresses. Required in a pipeline. Absent: the key
	// that a host shows first is trusted.
	HostKeys map[string]string `json:"hostKeys,omitempty"`
}

// Placement decides which host a VM is made on.
type Placement struct {
	// Strategy: spread distributes nodes evenly, pin uses the host that each node or pool names.
	Strategy Strategy `json:"strategy,omitempty" jsonschema:"default=spread,enum=spread,enum=pin"`
	// Resources to leave unused on each host without its own reserve.
	Reserve Resources `json:"reserve,omitempty"`
	// Migrate VMs to the hosts of the plan. Absent: a VM stays on its host, and a different plan is a warning.
	Rebalance bool `json:"rebalance,omitempty" jsonschema:"default=false"`
}

// Strategy of placement.
type Strategy string

// The strategies.
const (
	StrategySpread Strategy = "spread"
	StrategyPin    Strategy = "pin"
)
