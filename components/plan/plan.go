// Package plan has the decisions about a cluster, as package planner makes them, and what follows from them: their
// sources, the steps, labels, the rules of the firewall of Proxmox VE. It is pure.
package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/components/spec"
)

// Plan is every decision, made once, before anything is registered.
type Plan struct {
	Environment spec.Environment
	// Cluster is the cluster's name.
	Cluster string
	// Kind is what its nodes run; K3s is nil with any other.
	Distribution spec.Distribution
	K3s          *PlannedK3s

	Bootstrap spec.BootstrapMode
	// Talos and Kubernetes are versions with a leading v; Kubernetes is empty with bootstrap external, Talos with kind
	// k3s.
	Talos, Kubernetes string
	// Contract is the version of Talos whose defaults machine configuration is written with. Empty: the version that the
	// cluster was made with, which is not known here; see WithContract.
	Contract string

	EndpointMode spec.EndpointMode
	// Endpoint is the Kubernetes API as the nodes and the kubeconfig know it, "https://10.0.0.11:6443"; empty when it is
	// an address that is not known in advance.
	Endpoint string
	// VIP is the virtual address; invalid without one.
	VIP netip.Addr
	// VIPInterface is the interface that kube-vip announces it on, KubeVIP its version; empty in other modes.
	VIPInterface, KubeVIP string
	Discovery             spec.Discovery
	CNI                   spec.CNIName
	// CNIVersion and CNIValues are Cilium's; empty with another CNI.
	CNIVersion string
	CNIValues  map[string]any
	KubeProxy  bool
	// Region is what Kubernetes calls this Proxmox VE; empty: nodes are not told where they are.
	Region string
	// LoadBalancer is nil without one.
	LoadBalancer *PlannedLoadBalancer
	// SecretManifests and RegistryLogins say that the configuration has such.
	SecretManifests, RegistryLogins bool
	// CertNames are further names and addresses of the certificates of both APIs.
	CertNames []string
	// SchedulableControls lets control planes run pods.
	SchedulableControls bool
	// Addons are parts that are installed from their own manifests, fetched below ManifestMirror where there is one.
	Addons         []spec.Addon
	ManifestMirror string
	// GitOps is nil without a repository.
	GitOps *PlannedGitOps
	// Proxy is nil without one; NoProxy are all that is reached without it.
	Proxy     *spec.Proxy
	NoProxy   []string
	APIServer spec.APIServer

	Addressing spec.Addressing
	// Network is the network of the nodes; Gateway is invalid when none is set.
	Network     netip.Prefix
	Gateway     netip.Addr
	Nameservers []netip.Addr

	// Source and Platform are where the first boot comes from.
	Source   spec.Source
	Platform spec.Platform
	// ImageStore is the datastore of downloaded images.
	ImageStore string
	// SSH is the login to the hosts; nil when nothing needs it.
	SSH *spec.SSH

	Strategy  spec.Strategy
	Rebalance bool
	// Hosts are what placement counted, in the order of the configuration.
	Hosts []HostAllocation
	// Pools in plan order: control planes first, then by name.
	Pools []PlannedPool
	// Patches are the operator's machine configuration patches for every node.
	Patches []spec.Patch
	// Manifests are the operator's Kubernetes manifests, texts or URLs.
	Manifests   []spec.InlineOrFile
	TimeServers []string
	// Mirrors of registries, by the registry's name.
	Mirrors    []Mirror
	TrustedCAs []spec.InlineOrFile
	// ServiceLogs and KernelLogs are URLs.
	ServiceLogs, KernelLogs []string
	// Encryption is empty without it.
	Encryption spec.Encryption

	// Tailscale is nil without it.
	Tailscale *spec.Tailscale
	// Firewall is whether firewalls are set up; what they let in is a decision for each pool.
	Firewall bool
	// ImportSecrets says that the cluster's secrets come from the configuration.
	ImportSecrets bool
	Outputs       spec.Outputs

	// ReadyTimeout, NodeTimeout and AgentTimeout bound the program's own waits.
	ReadyTimeout, NodeTimeout, AgentTimeout time.Duration
	BootstrapWaitsForWorkers                bool
	// DrainTimeout bounds how long pods may take to leave a node.
	DrainTimeout time.Duration
	// SettleTimeout is how long a failure may last before it counts, TransferTimeout how long a snapshot of etcd may
	// be on its way.
	SettleTimeout, TransferTimeout time.Duration
	// TaskTimeout is how long a task that the program starts on Proxmox VE may take.
	TaskTimeout time.Duration
	// ParallelClones is how many clones of one template are made at a time; 0: any number.
	ParallelClones int
	// KubeconfigRenewal is how long before its end the kubeconfig is renewed; 0: the provider's default.
	KubeconfigRenewal time.Duration
	// Replace names nodes whose VM is recreated, ForceRemove nodes that are dead or broken and may leave.
	Replace, ForceRemove []string
	// AcceptEmpty lets a cluster that has lost its etcd begin with an empty one.
	AcceptEmpty bool
	// RecoverFrom is the snapshot of etcd that a new set of control planes begins with; empty: none.
	RecoverFrom string
	// Backup is where snapshots of etcd are kept; nil: none is taken.
	Backup *spec.Backup
	// Teardown lets go of every node.
	Teardown bool
	// MaxUnavailable is how many workers may be away at the same time, Canary lets the first of a pool go alone, and
	// UpgradeTimeout bounds how long a node may be away.
	MaxUnavailable int
	Canary         bool
	UpgradeTimeout time.Duration
	Apply          spec.Apply

	// Steps are what is done, in order.
	Steps []Step
	// Warnings do not stop the program.
	Warnings []spec.Problem
}

// PlannedPool is one pool with its nodes, in the order of their ordinals.
type PlannedPool struct {
	Name string
	Role spec.Role
	// GPU says that each node has a GPU, Tailnet that each joins the tailnet.
	GPU, Tailnet bool
	Image        BootImage
	Patches      []spec.Patch
	// Ingress is all that may come in to the nodes; nil without firewalls.
	Ingress []Ingress
	// LoadBalancer has the addresses of Services that come in to the nodes, too; nil without firewalls.
	LoadBalancer *PlannedLoadBalancer
	Nodes        []Node
	// VMIDs and Addresses belong to the pool, whether nodes use them yet or not.
	VMIDs     []Span[int]
	Addresses []Span[netip.Addr]
}

// Span is a range, both ends included.
type Span[T any] struct{ First, Last T }

// BootImage is what the nodes of a pool boot first.
type BootImage struct {
	// Path is the configuration key that states it.
	Path string
	// Template is the name or VMID of the template to clone; empty with other sources.
	Template string
	// Volume or URL is the ISO file, or with format disk the disk image; both are empty with other sources.
	Volume, URL string
	// Checksum is the SHA-256 of what URL holds; empty when it is not known.
	Checksum  string
	Overwrite bool
	// Detach takes the ISO file out of a node's drive before the node is configured.
	Detach bool
	// Keep leaves what was downloaded where it is when the stack no longer wants it.
	Keep bool
	// FactoryURL is empty with other sources. Format is too, but for cloud images, which are disks.
	FactoryURL string
	Format     spec.Format
	// SchematicID is what the operator says the image carries, when it is an id.
	SchematicID string
	// Extensions and KernelArgs are what the image carries.
	Extensions, KernelArgs []string
	// SecureBoot says that the image is signed, and so is what is installed from it.
	SecureBoot bool
	// Scope is what one image is made for.
	Scope Scope
}

// Scope is what one image is made for.
type Scope string

// The scopes.
const (
	PerCluster Scope = "cluster"
	PerPool    Scope = "pool"
	// PerNode images hold the node's address.
	PerNode Scope = "node"
)

// Node is one machine of the cluster: everything that is decided about it.
type Node struct {
	Name string
	// Cluster is the name of the node's cluster, which its VM has as a tag.
	Cluster string
	Pool    string
	Role    spec.Role
	Ordinal int
	// Host is where the VM is made. It may move later: this is no statement of where it is.
	Host string
	VMID int
	// MAC of the first network interface.
	MAC string
	// Address is invalid when it is not known in advance.
	Address netip.Addr
	// Static says that the address is written into the machine configuration.
	Static bool
	// Template is the name or VMID of the template to clone; empty with other sources.
	Template string
	// ImageKey is the same for nodes that boot from the same image.
	ImageKey string

	Cores   int
	CPUType string
	NUMA    bool
	// CPUUnits is the weight of the VM on its host; 0: not set, which is 100 for a new VM and no change for another.
	CPUUnits   int
	MemoryMiB  int
	Ballooning bool
	// MinimumMemoryMiB is what ballooning leaves the VM.
	MinimumMemoryMiB int
	// Disks: the system disk first.
	Disks []Disk
	// NICs: the one with the node's address first.
	NICs []Interface
	// GPU is nil without one.
	GPU *GPU
	// Machine, Firmware and SCSIController are empty where the template decides, and what it must have where they are not.
	Machine, Firmware, SCSIController string
	TPM, Serial, OnBoot, Protection   bool
	Startup                           *spec.Startup
	Tags                              []string
	ResourcePool, HAGroup             string
	// HA is what high availability is to do beyond a group; nil: nothing is set.
	HA *spec.HA

	// Agent says that the guest agent is in the image, so that Proxmox VE may ask it.
	Agent bool
	// CDROM is where the ISO file is, CloudInit where the cloud-init drive is; empty without them.
	CDROM, CloudInit string
	// BootOrder is empty where the template decides.
	BootOrder []string

	Labels, Taints, Annotations map[string]string
	Patches                     []spec.Patch
}

// Disk of a VM. Of a cloned system disk only place and size are decided; the options are the template's.
type Disk struct {
	// Interface is where it is attached, "scsi0".
	Interface, Datastore string
	SizeGiB              int
	Cache, AIO           string
	Discard, SSD         bool
	IOThread             bool
	Backup, Replicate    bool
	// Volume of Talos on the disk; nil: none.
	Volume *spec.Volume
}

// HasVolume says whether any node has a volume of this name.
func (p *Plan) HasVolume(name string) bool {
	return slices.ContainsFunc(p.Nodes(), func(n Node) bool { return n.HasVolume(name) })
}

// HasVolume says whether a node has a volume of this name.
func (n Node) HasVolume(name string) bool {
	return slices.ContainsFunc(n.Disks, func(d Disk) bool { return d.Volume != nil && d.Volume.Name == name })
}

// Position is the bus of a disk and its place there: scsi, 0.
func (d Disk) Position() (bus string, place int) {
	bus = strings.TrimRight(d.Interface, "0123456789")
	place, _ = strconv.Atoi(d.Interface[len(bus):]) // validated; 0 otherwise

	return bus, place
}

// Interface is a network interface of a VM.
type Interface struct {
	Bridge   string
	MAC      string
	VLAN     int // 0: untagged
	MTU      int // 0: 1500, 1: the bridge's
	Firewall bool
}

// GPU is passed through from the host.
type GPU struct {
	BDF          string
	PCIe, ROMBar bool
	// Raw passes it by address; otherwise a resource mapping is made.
	Raw bool
}

// The groups of the contract.
const (
	GroupControlPlane = "control_plane"
	GroupWorkers      = "workers"
	GroupGPUWorkers   = "gpu_workers"
)

// PlannedGitOps is the repository that a cluster is kept in step with.
type PlannedGitOps struct {
	spec.GitOps

	// Tool is flux or argo-cd.
	Tool spec.Addon
	// Key and Age say that the configuration has gitOpsKey and ageKey.
	Key, Age bool
}

// SSH says that the repository is reached over SSH.
func (g PlannedGitOps) SSH() bool { return strings.HasPrefix(g.Repository, "ssh://") }

// Group is the part of the contract that a node belongs to.
func (p PlannedPool) Group() string {
	switch {
	case p.Role == spec.RoleControlPlane:
		return GroupControlPlane
	case p.GPU:
		return GroupGPUWorkers
	default:
		return GroupWorkers
	}
}

// Runs says what the nodes run, with versions: "Talos v1.12.4", "Kubernetes v1.34.2", or "K3s v1.34.2+k3s1".
func (p *Plan) Runs() []string {
	if p.Distribution == spec.DistributionK3s {
		return []string{"K3s " + p.K3s.Version}
	}

	all := []string{"Talos " + p.Talos}
	if p.Kubernetes != "" {
		all = append(all, "Kubernetes "+p.Kubernetes)
	}

	return all
}

// WithContract is the plan of a cluster that was made with the version of Talos, unless the plan states one itself.
// What runs must know the contract: after a way back, it is no later than what runs.
func (p *Plan) WithContract(version string) *Plan {
	if p.Contract != "" {
		return p
	}

	made := *p
	if made.Contract = version; Minor(version) > Minor(p.Talos) {
		made.Contract = p.Talos
	}

	return &made
}

// ContractVersion is the contract, of a cluster that is about to be made where none is set. It is no later than the
// Talos provider knows.
func (p *Plan) ContractVersion() string {
	version := cmp.Or(p.Contract, p.Talos)
	if Minor(version) > NewestContract {
		return fmt.Sprintf("v1.%d.0", NewestContract)
	}

	return version
}

// Nodes returns all nodes in plan order.
func (p *Plan) Nodes() []Node {
	var all []Node
	for _, pool := range p.Pools {
		all = append(all, pool.Nodes...)
	}

	return all
}

// PoolOf is the pool of a node; one that the plan does not have is empty.
func (p *Plan) PoolOf(n Node) PlannedPool {
	for _, pool := range p.Pools {
		if pool.Name == n.Pool {
			return pool
		}
	}

	return PlannedPool{}
}

// Protected says that a control plane is guarded from removal: what a cluster cannot do without is guarded then, too.
func (p *Plan) Protected() bool {
	return slices.ContainsFunc(p.ControlPlanes(), func(n Node) bool { return n.Protection })
}

// ControlPlanes returns the control planes in plan order. The first is the one that is bootstrapped.
func (p *Plan) ControlPlanes() []Node {
	var found []Node

	for _, pool := range p.Pools {
		if pool.Role == spec.RoleControlPlane {
			found = append(found, pool.Nodes...)
		}
	}

	return found
}

// GuestAgent is the extension that reports a node's addresses to Proxmox VE.
const GuestAgent = "qemu-guest-agent"

// ISO says whether the image is an ISO file.
func (b BootImage) ISO() bool {
	return b.Format != spec.FormatDisk && (b.Volume != "" || b.URL != "" || b.Format == spec.FormatISO)
}
