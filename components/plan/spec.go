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
	// its hosts share.
	Snippets string `json:"snippets,omitempty" jsonschema:"default=local"`
}

// SSH is the login to the hosts that the import of disk images and the user data of K3s nodes need. Its key is sshPrivateKey.
type SSH struct {
	// User on the hosts, root or one that may use sudo without a password.
	Username string `json:"username"`
	// Port of the SSH server.
	Port int `json:"port,omitempty" jsonschema:"default=22,minimum=1,maximum=65535"`
	// Address of each host, by name. Absent: the address that Proxmox VE reports.
	Addresses map[string]string `json:"addresses,omitempty"`
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
	// Configure the firewalls. Absent: true in production, false in a lab.
	Enabled *bool `json:"enabled,omitempty"`
	// Networks that may reach the Talos and Kubernetes APIs in addition to the nodes, and SSH of K3s nodes. They
	// must include the machine that runs pulumi. Absent: network.cidr.
	APIFrom []string `json:"apiFrom,omitempty"`
	// Additional open ports, such as those of an ingress controller.
	Open []Opening `json:"open,omitempty"`
}

// Opening lets more in to nodes than Talos and Kubernetes need.
type Opening struct {
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
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	ICMP Protocol = "icmp"
)

// Lifecycle bounds the program's own waits and says what stays.
type Lifecycle struct {
	// Timeout for the control plane to become ready before the kubeconfig is fetched.
	ReadyTimeout string `json:"readyTimeout,omitempty" jsonschema:"default=10m"`
	// Timeout for a node to answer before its configuration is applied, and to run with it afterwards.
	NodeTimeout string `json:"nodeTimeout,omitempty" jsonschema:"default=10m"`
	// Timeout for the guest agent to report an address.
	AgentTimeout string `json:"agentTimeout,omitempty" jsonschema:"default=5m"`
	// Bootstrap only after the workers are configured too. Absent: a worker that does not come up does not block
	// the bootstrap. Without the discovery service, workers are always configured after it.
	BootstrapWaitsForWorkers bool `json:"bootstrapWaitsForWorkers,omitempty" jsonschema:"default=false"`
	// Keep downloaded images when the stack is destroyed.
	KeepImages *bool `json:"keepImages,omitempty" jsonschema:"default=true"`
	// Timeout of the drain of a node before it is disrupted or removed. Disruption budgets are respected.
	DrainTimeout string `json:"drainTimeout,omitempty" jsonschema:"default=5m"`
	// Grace period for transient failures: of etcd, of a node that is being removed, of a Kubernetes API server
	// that answered before. Operations fail once it has elapsed. It is three times as long before a node is
	// disrupted.
	SettleTimeout string `json:"settleTimeout,omitempty" jsonschema:"default=10s"`
	// Names of nodes to replace, once when a name is added. VMID, MAC address, name and IP address stay.
	Replace []string `json:"replace,omitempty"`
	// Names of dead or broken nodes. They are removed even if they do not answer, or a step of their removal fails.
	ForceRemove []string `json:"forceRemove,omitempty"`
	// The name of the cluster. After the loss of all control planes, the cluster may start with an empty etcd, once
	// when the key is set. All Kubernetes data are lost; see cluster.recoverFrom.
	AcceptEmptyCluster string `json:"acceptEmptyCluster,omitempty"`
	// Allow the whole cluster to be destroyed: releases all nodes, and removes their protection. It is the first of
	// two steps. With cluster.bootstrap external, 'ops run destroy' alone is enough, and only protected VMs need
	// it.
	Teardown bool `json:"teardown,omitempty" jsonschema:"default=false"`
	// Snapshots of etcd, taken each time before a control plane is disrupted or removed.
	Backup Backup `json:"backup,omitempty"`
	// How running nodes are disrupted, for an upgrade or a change that needs a reboot.
	Upgrade Upgrade `json:"upgrade,omitempty"`
	// How to apply a change that needs a reboot: auto reboots the node, staged waits for the next reboot, noReboot
	// refuses the change.
	Apply Apply `json:"apply,omitempty" jsonschema:"default=auto,enum=auto,enum=staged,enum=noReboot"`
}

// Backup keeps snapshots of etcd on the machine that runs the program.
type Backup struct {
	// Take snapshots. They contain all Kubernetes data, secrets included.
	Enabled *bool `json:"enabled,omitempty" jsonschema:"default=true"`
	// Directory, relative to the project. It must be ignored by git.
	Dir string `json:"dir,omitempty" jsonschema:"default=./etcd-backups"`
	// Number of the cluster's snapshots to keep.
	Keep int `json:"keep,omitempty" jsonschema:"default=10,minimum=1,maximum=1000"`
	// Timeout of the transfer of a snapshot, from or to a node.
	Timeout string `json:"timeout,omitempty" jsonschema:"default=15m"`
}

// Upgrade bounds how running nodes are taken down. Control planes go first and one by one, whatever it says.
type Upgrade struct {
	// Number of workers that may be unavailable at the same time.
	MaxUnavailable int `json:"maxUnavailable,omitempty" jsonschema:"default=1,minimum=1,maximum=1000"`
	// Disrupt the first worker of each pool alone, and the others when it has recovered.
	Canary bool `json:"canary,omitempty" jsonschema:"default=false"`
	// Timeout for a disrupted node to recover.
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
	// Files to write on the operator's machine. Absent: none.
	Files *Files `json:"files,omitempty"`
	// Add the outputs control_plane_ips, worker_ips, gpu_worker_ips and their VMID and BDF lists.
	Legacy bool `json:"legacy,omitempty" jsonschema:"default=false"`
}

// Files are written when the cluster is up, readable for their owner only.
type Files struct {
	// Directory, relative to the project. It must be ignored by git.
	Dir string `json:"dir,omitempty" jsonschema:"default=./talos"`
	// Files to write.
	Write []File `json:"write" jsonschema:"enum=talosconfig,enum=kubeconfig,enum=control-plane.yaml,enum=worker.yaml,enum=secrets.yaml"`
}

// File is the name of a file that can be written.
type File string
