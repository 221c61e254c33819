package spec

// Lifecycle bounds the program's own waits and says what stays.
type Lifecycle struct {
	// Timeout for the control plane to become ready: before the kubeconfig is fetched, and after each change.
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
	// Timeout of a task that the program itself starts on Proxmox VE: to start or restart a VM, to grow a disk, to
	// download an image again; at least 4m. It also bounds the wait for a locked VM or template. Other tasks are the
	// provider's.
	TaskTimeout string `json:"taskTimeout,omitempty" jsonschema:"default=30m"`
	// Grace period for transient failures: of etcd, of a node that is being removed, of a Kubernetes API server
	// or a Proxmox VE that answered before. Operations fail once it has elapsed. It is three times as long before a
	// node is disrupted. It also bounds the question, at the end of an update, which nodes are cordoned.
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
	// Remaining validity of the kubeconfig at which an update renews it, at most 8000h of its year. Absent: 720h.
	KubeconfigRenewal string `json:"kubeconfigRenewal,omitempty"`
	// How to apply a change that needs a reboot: auto reboots the node, staged waits for the next reboot, noReboot
	// refuses the change.
	Apply Apply `json:"apply,omitempty" jsonschema:"default=auto,enum=auto,enum=staged,enum=noReboot"`
}

// Backup keeps snapshots of etcd: of Talos on the machine that runs the program, of K3s on its servers.
type Backup struct {
	// Take a snapshot before a change that disrupts a control plane. It contains all Kubernetes data, secrets included.
	Enabled *bool `json:"enabled,omitempty" jsonschema:"default=true"`
	// Directory, relative to the project. It must be ignored by git. Talos only.
	Dir string `json:"dir,omitempty" jsonschema:"default=./etcd-backups"`
	// Number of the cluster's snapshots to keep; with K3s, on each server.
	Keep int `json:"keep,omitempty" jsonschema:"default=10,minimum=1,maximum=1000"`
	// Public keys of age (age1...) that snapshots are encrypted for. Absent: snapshots are encrypted with
	// backupPassphrase, or are in plain text without it.
	Recipients []string `json:"recipients,omitempty"`
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

// StagedCannotConfigure refuses nodes that are created or replaced while configurations wait for the next reboot: the
// first one must take effect at once.
func StagedCannotConfigure(nodes string) Problem {
	return Problem{
		Path: "lifecycle.apply", Rule: "cannot configure nodes that this update creates or replaces, " + nodes,
		Value: string(ApplyStaged), Remedy: "set auto for this update, or leave these nodes as they are",
	}
}
