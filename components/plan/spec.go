package plan

// Spec is what the operator asks for. Its JSON names are the keys of the stack configuration, the comments of its fields
// are what editors show for them, and the paths of problems are paths in it. Absent values are zero values or nil
// pointers; New fills in the defaults that the tags name.
type Spec struct {
	// Environment sets defaults and the strength of the policy pack. It changes no rule of this package.
	Environment Environment
	// Hosts are the Proxmox VE hosts that VMs may run on. Their order breaks ties.
	Hosts []Host
	// Storage names the datastores used where a pool does not name its own.
	Storage Storage
	// SSH is the login to the hosts; nil without one.
	SSH *SSH
	// Given says which secrets the operator has set. What they are never gets here.
	Given   Secrets
	Cluster Cluster
	// K3s is nil where nothing of it is stated.
	K3s       *K3s
	Image     Image
	Network   Network
	Placement Placement
	Defaults  Shape
	// Pools by name. The names "control" and "worker" have no meaning of their own; the role has.
	Pools map[string]Pool
	// Tailscale is nil without it.
	Tailscale *Tailscale
	Firewall  Firewall
	Lifecycle Lifecycle
	Outputs   Outputs
}

// Environment is "lab" or "production".
type Environment string

// The environments.
const (
	Lab        Environment = "lab"
	Production Environment = "production"
)

// Secrets says which secret keys are set.
type Secrets struct {
	// RootPassword: the login is root@pam with a password, not an API token.
	RootPassword bool
	// SSHKey, TailscaleKey and MachineSecrets: the keys sshPrivateKey, tailscaleAuthKey and machineSecrets.
	SSHKey, TailscaleKey, MachineSecrets bool
	// K3sToken: the key k3sToken.
	K3sToken bool
}

// Host is one Proxmox VE host (Proxmox calls it a node; here a node is always a Talos machine).
type Host struct {
	// Name of the host as Proxmox VE knows it.
	Name string `json:"name"`
	// What the host can give to VMs. Absent: as much as is asked.
	Capacity *Resources `json:"capacity,omitempty"`
	// What of the capacity is left alone, instead of placement.reserve.
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
	// Datastore of ISO files and disk images that are downloaded.
	Images string `json:"images,omitempty" jsonschema:"default=local"`
	// Datastore of the user data of K3s nodes. It must take snippets; a VM that may move needs one that its hosts share.
	Snippets string `json:"snippets,omitempty" jsonschema:"default=local"`
}

// SSH is the login to the hosts that the import of disk images and the user data of K3s nodes need. Its key is sshPrivateKey.
type SSH struct {
	// User on the hosts, root or one that may use sudo without a password.
	Username string `json:"username"`
	// Port of the SSH server.
	Port int `json:"port,omitempty" jsonschema:"default=22,minimum=1,maximum=65535"`
	// Address of each host, by its name. Absent: what Proxmox VE says.
	Addresses map[string]string `json:"addresses,omitempty"`
}

// Placement decides which host a VM is made on.
type Placement struct {
	// How hosts are chosen: spread evens out, pin takes the host that each node or pool names.
	Strategy Strategy `json:"strategy,omitempty" jsonschema:"default=spread,enum=spread,enum=pin"`
	// What is left alone on each host that states no reserve of its own.
	Reserve Resources `json:"reserve,omitempty"`
	// Move VMs to where the plan wants them, by migration. Absent: a VM stays where it is, and a differing plan is a warning.
	Rebalance bool `json:"rebalance,omitempty" jsonschema:"default=false"`
}

// Strategy of placement.
type Strategy string

// The strategies.
const (
	Spread Strategy = "spread"
	Pin    Strategy = "pin"
)

// Tailscale makes nodes members of a tailnet. Its key is tailscaleAuthKey.
type Tailscale struct {
	// Pools whose nodes join. Absent: all.
	Pools []string `json:"pools,omitempty"`
	// URL of a Headscale server. Absent: Tailscale's own.
	LoginServer string `json:"loginServer,omitempty"`
}

// Firewall closes what the nodes do not need.
type Firewall struct {
	// Whether firewalls are set up. Absent: in production, not in a lab.
	Enabled *bool `json:"enabled,omitempty"`
	// Networks that may reach the Talos and Kubernetes APIs beside the nodes, and SSH of K3s nodes. It must hold whoever runs
	// this program. Absent: network.cidr.
	APIFrom []string `json:"apiFrom,omitempty"`
	// What else may come in, such as what an ingress controller serves.
	Open []Opening `json:"open,omitempty"`
}

// Opening lets more in to nodes than Talos and Kubernetes need.
type Opening struct {
	// Name of the opening, a DNS label.
	Name string `json:"name"`
	// Ports, for example 443 or 30000-32767.
	Ports Range `json:"ports"`
	// Protocol of the ports.
	Protocol Protocol `json:"protocol,omitempty" jsonschema:"default=tcp,enum=tcp,enum=udp"`
	// Networks that may come in, for example 0.0.0.0/0. Absent: network.cidr.
	From []string `json:"from,omitempty"`
	// Pools whose nodes are opened. Absent: all.
	Pools []string `json:"pools,omitempty"`
}

// Protocol of what comes in.
type Protocol string

// The protocols.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp"
)

// Lifecycle bounds the program's own waits and says what stays.
type Lifecycle struct {
	// How long to wait for the control plane before the kubeconfig is fetched.
	ReadyTimeout string `json:"readyTimeout,omitempty" jsonschema:"default=10m"`
	// How long to wait for a node to answer before its configuration is applied, and to run with it afterwards.
	NodeTimeout string `json:"nodeTimeout,omitempty" jsonschema:"default=10m"`
	// How long to wait for the guest agent to report an address.
	AgentTimeout string `json:"agentTimeout,omitempty" jsonschema:"default=5m"`
	// Bootstrap only after the workers are configured too. Absent: a worker that does not come up holds nothing back. Without the discovery service, workers are always configured after it.
	BootstrapWaitsForWorkers bool `json:"bootstrapWaitsForWorkers,omitempty" jsonschema:"default=false"`
	// Keep downloaded images when the stack is destroyed.
	KeepImages *bool `json:"keepImages,omitempty" jsonschema:"default=true"`
	// How long the pods of a node may take to leave it before something is done to it. Disruption budgets are respected.
	DrainTimeout string `json:"drainTimeout,omitempty" jsonschema:"default=5m"`
	// How long etcd may look unwell, a node that is to leave not answer, or a Kubernetes API server be away that has answered before, until that counts; three times as long before a node is taken down.
	SettleTimeout string `json:"settleTimeout,omitempty" jsonschema:"default=10s"`
	// Names of nodes whose VM is made anew, once when a name is added. VMID, MAC address, name and address stay.
	Replace []string `json:"replace,omitempty"`
	// Names of nodes that are dead or broken. They are removed although they do not answer, or a step of their
	// removal fails.
	ForceRemove []string `json:"forceRemove,omitempty"`
	// The name of the cluster: with all control planes lost, it may begin with an empty etcd, once when the key is set. What Kubernetes knew is
	// lost; see cluster.recoverFrom.
	AcceptEmptyCluster string `json:"acceptEmptyCluster,omitempty"`
	// Let the whole cluster be destroyed: nodes are not held back any more, nor protected. It is the first of two steps. With
	// cluster.bootstrap external, 'ops run destroy' alone is enough, and only VMs that are protected need it.
	Teardown bool `json:"teardown,omitempty" jsonschema:"default=false"`
	// Snapshots of etcd, taken each time before a control plane is taken down or leaves.
	Backup Backup `json:"backup,omitempty"`
	// How running nodes are taken down and come back, for an upgrade or a change that needs a reboot.
	Upgrade Upgrade `json:"upgrade,omitempty"`
	// What becomes of a change that Talos takes only with a reboot: the node is rebooted, the change waits for the next reboot, or it
	// is refused.
	Apply Apply `json:"apply,omitempty" jsonschema:"default=auto,enum=auto,enum=staged,enum=noReboot"`
}

// Backup keeps snapshots of etcd on the machine that runs the program.
type Backup struct {
	// Take them. They hold all that Kubernetes knows, its secrets included.
	Enabled *bool `json:"enabled,omitempty" jsonschema:"default=true"`
	// Directory, relative to the project. It must be ignored by git.
	Dir string `json:"dir,omitempty" jsonschema:"default=./etcd-backups"`
	// How many of the cluster's snapshots stay.
	Keep int `json:"keep,omitempty" jsonschema:"default=10,minimum=1,maximum=1000"`
	// How long a snapshot may take to be sent, from a node or to one.
	Timeout string `json:"timeout,omitempty" jsonschema:"default=15m"`
}

// Upgrade bounds how running nodes are taken down. Control planes go first and one by one, whatever it says.
type Upgrade struct {
	// How many workers may be away at the same time.
	MaxUnavailable int `json:"maxUnavailable,omitempty" jsonschema:"default=1,minimum=1,maximum=1000"`
	// The first worker of each pool goes alone, and the others when it is back.
	Canary bool `json:"canary,omitempty" jsonschema:"default=false"`
	// How long a node may take to come back.
	Timeout string `json:"timeout,omitempty" jsonschema:"default=15m"`
}

// Apply says what becomes of a change that needs a reboot.
type Apply string

// The ways.
const (
	ApplyAuto     Apply = "auto"
	ApplyStaged   Apply = "staged"
	ApplyNoReboot Apply = "noReboot"
)

// Outputs are what the stack leaves for others beside the contract.
type Outputs struct {
	// Files for the operator's own machine. Absent: none.
	Files *Files `json:"files,omitempty"`
	// Also the outputs control_plane_ips, worker_ips, gpu_worker_ips and their VMID and BDF lists.
	Legacy bool `json:"legacy,omitempty" jsonschema:"default=false"`
}

// Files are written when the cluster is up, readable for their owner only.
type Files struct {
	// Directory, relative to the project. It must be ignored by git.
	Dir string `json:"dir,omitempty" jsonschema:"default=./talos"`
	// Which files.
	Write []File `json:"write" jsonschema:"enum=talosconfig,enum=kubeconfig,enum=control-plane.yaml,enum=worker.yaml,enum=secrets.yaml"`
}

// File is the name of a file that can be written.
type File string
