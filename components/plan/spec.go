package plan

import "encoding/json"

// Spec is what the operator asks for. Its JSON names are the keys of the stack configuration, and the paths of problems
// are paths in it. Absent values are zero values or nil pointers; New fills in the defaults named here.
type Spec struct {
	// Environment sets the strength of the policy pack. It changes no rule of this package.
	Environment Environment
	// Hosts are the Proxmox VE hosts that VMs may run on. Their order breaks ties.
	Hosts []Host
	// Storage names the datastores used where a pool does not name its own.
	Storage  Storage
	Cluster  Cluster
	Image    Image
	Network  Network
	Defaults Shape
	// Pools by name. The names "control" and "worker" have no meaning of their own; the role has.
	Pools     map[string]Pool
	Lifecycle Lifecycle
}

// Environment is "lab" or "production".
type Environment string

// The environments.
const (
	Lab        Environment = "lab"
	Production Environment = "production"
)

// Host is one Proxmox VE host (Proxmox calls it a node; here a node is always a Talos machine).
type Host struct {
	// Name as Proxmox knows it.
	Name string `json:"name" jsonschema:"description=Name of the host as Proxmox VE knows it."`
}

// Storage names datastores.
type Storage struct {
	// Disks is the datastore of VM disks, "local-lvm" when absent.
	Disks string `json:"disks,omitempty" jsonschema:"description=Datastore of VM disks.,default=local-lvm"`
}

// Cluster describes the Kubernetes cluster.
type Cluster struct {
	// Name of the cluster: a DNS label, part of every node name, MAC address and tag.
	Name string `json:"name" jsonschema:"description=Name of the cluster. A DNS label; part of node names\\, MAC addresses and tags."`
	// HA demands at least three control planes and an odd number of them.
	HA bool `json:"ha,omitempty" jsonschema:"description=Demand at least three control planes\\, and an odd number.,default=false"`
	// Bootstrap says who turns the VMs into a cluster: "pulumi" (the default) or "external".
	Bootstrap Owner `json:"bootstrap,omitempty" jsonschema:"description=Who turns the VMs into a cluster.,default=pulumi,enum=pulumi,enum=external"`
	// Versions of what runs in it.
	Versions Versions `json:"versions" jsonschema:"description=Versions of what runs in the cluster."`
	// Endpoint is how the Kubernetes API is reached.
	Endpoint Endpoint `json:"endpoint,omitempty" jsonschema:"description=How the Kubernetes API is reached."`
	// Patches are Talos machine configuration patches for every node.
	Patches []Patch `json:"patches,omitempty" jsonschema:"description=Talos machine configuration patches for every node: a path relative to the project\\, or the patch itself."`
}

// Owner says who bootstraps the cluster.
type Owner string

// The owners.
const (
	ByPulumi Owner = "pulumi"
	External Owner = "external"
)

// Versions of Talos and Kubernetes, with or without the leading v.
type Versions struct {
	Talos      string `json:"talos" jsonschema:"description=Talos Linux\\, for example v1.12.4."`
	Kubernetes string `json:"kubernetes" jsonschema:"description=Kubernetes\\, for example v1.34.2."`
}

// Endpoint is how the Kubernetes API is reached.
type Endpoint struct {
	// Mode is "firstControlPlane" when absent.
	Mode EndpointMode `json:"mode,omitempty" jsonschema:"description=Which address stands for the Kubernetes API.,default=firstControlPlane,enum=firstControlPlane,enum=vip,enum=dns,enum=kubeVip"`
}

// EndpointMode says which address stands for the Kubernetes API.
type EndpointMode string

// The endpoint modes.
const (
	FirstControlPlane EndpointMode = "firstControlPlane"
	VIP               EndpointMode = "vip"
	DNS               EndpointMode = "dns"
	KubeVIP           EndpointMode = "kubeVip"
)

// Image says where a node's first boot comes from.
type Image struct {
	// Source is "factory" when absent.
	Source Source `json:"source,omitempty" jsonschema:"description=Where the first boot of a node comes from.,default=factory,enum=template,enum=iso,enum=factory"`
	// Platform is the Talos platform of the image: "metal" for templates when absent.
	Platform Platform `json:"platform,omitempty" jsonschema:"description=The Talos platform of the image.,enum=metal,enum=nocloud"`
	// Template names the template to clone, per role.
	Template Templates `json:"template,omitempty" jsonschema:"description=The template to clone for each role: a name or a VMID."`
}

// Source is a boot source.
type Source string

// The boot sources.
const (
	Template Source = "template"
	ISO      Source = "iso"
	Factory  Source = "factory"
)

// Platform is a Talos platform.
type Platform string

// The platforms.
const (
	Metal   Platform = "metal"
	NoCloud Platform = "nocloud"
)

// Templates names the template of each role: a VM template's name (case matters) or its VMID.
type Templates struct {
	Control string `json:"control,omitempty" jsonschema:"description=For control planes."`
	Worker  string `json:"worker,omitempty" jsonschema:"description=For workers. Required when there are any."`
	// DiskInterface is where the template has its disk, "scsi0" when absent.
	DiskInterface string `json:"diskInterface,omitempty" jsonschema:"description=Where the template has its disk.,default=scsi0"`
	// AllowNonCanonicalName admits names other than talos-v<major>.<minor>.<patch>-base.
	AllowNonCanonicalName bool `json:"allowNonCanonicalName,omitempty" jsonschema:"description=Admit names other than talos-v<major>.<minor>.<patch>-base.,default=false"`
}

// Network is the network of the nodes.
type Network struct {
	// Addressing is how a node's address is known: "static" when absent, "reserved" for metal templates.
	Addressing Addressing `json:"addressing,omitempty" jsonschema:"description=How the address of a node is known.,enum=static,enum=reserved,enum=agent,enum=reported"`
	// CIDR is the network of the nodes, "10.0.0.0/16".
	CIDR string `json:"cidr" jsonschema:"description=The network of the nodes\\, for example 10.0.0.0/16."`
	// Gateway is the router; no node may have its address.
	Gateway string `json:"gateway,omitempty" jsonschema:"description=Address of the router."`
	// Bridge is "vmbr0" when absent.
	Bridge string `json:"bridge,omitempty" jsonschema:"description=Bridge of the network interfaces.,default=vmbr0"`
	// VLAN is a tag from 1 to 4094; 0 is untagged.
	VLAN int `json:"vlan,omitempty" jsonschema:"description=VLAN tag; absent means untagged.,minimum=1,maximum=4094"`
}

// Addressing is how a node's address is known.
type Addressing string

// The ways of addressing.
const (
	Static   Addressing = "static"
	Reserved Addressing = "reserved"
	Agent    Addressing = "agent"
	Reported Addressing = "reported"
)

// Shape is the size and kind of a VM. Values merge: built-in, defaults, pool.
type Shape struct {
	// Cores is 2 when absent.
	Cores *int `json:"cores,omitempty" jsonschema:"description=Virtual CPU cores.,default=2,minimum=1"`
	// MemoryMiB is 4096 when absent.
	MemoryMiB *int `json:"memoryMiB,omitempty" jsonschema:"description=Memory in MiB.,default=4096,minimum=1024"`
	// DiskGiB is 40 when absent. It may grow later and never shrinks.
	DiskGiB *int `json:"diskGiB,omitempty" jsonschema:"description=System disk in GiB; it may grow later and never shrinks.,default=40,minimum=6"`
	// CPUType is "host" when absent.
	CPUType *string `json:"cpuType,omitempty" jsonschema:"description=CPU type that the guest sees.,default=host"`
	// OnBoot starts the VM with its host; true when absent.
	OnBoot *bool `json:"onBoot,omitempty" jsonschema:"description=Start the VM when its host starts.,default=true"`
	// Tags are added to the tags of the cluster.
	Tags []string `json:"tags,omitempty" jsonschema:"description=Tags of the VM beside those of the cluster."`
}

// Pool is a set of nodes of one role and shape.
type Pool struct {
	Role Role `json:"role" jsonschema:"description=Role of the pool's nodes.,enum=controlplane,enum=worker"`
	// Count makes the nodes 1 to Count. Ordinal n has the nth VMID and the nth address of its pool, for life.
	Count int `json:"count" jsonschema:"description=Number of nodes. Node n has the nth VMID and the nth address of the pool\\, for life.,minimum=0"`
	// VMIDs is a range, "401-449". The only control plane pool without one starts at 401, the only worker pool at 501.
	VMIDs Range `json:"vmids,omitempty" jsonschema:"description=VMIDs\\, for example 401-449. The only control plane pool without them starts at 401\\, the only worker pool at 501."`
	// Addresses is a range, "10.0.0.11-10.0.0.13".
	Addresses Range `json:"addresses,omitempty" jsonschema:"description=Addresses\\, for example 10.0.0.11-10.0.0.13."`
	// Names is the pattern of node names, "{cluster}-{pool}-{n}" when absent; {nn} and {nnn} pad with zeros.
	Names string `json:"names,omitempty" jsonschema:"description=Pattern of node names; {nn} and {nnn} pad the number with zeros.,default={cluster}-{pool}-{n}"`
	// Patches are Talos machine configuration patches for the nodes of this pool.
	Patches []Patch `json:"patches,omitempty" jsonschema:"description=Talos machine configuration patches for the nodes of this pool: a path relative to the project\\, or the patch itself."`

	Shape
}

// Role of a node.
type Role string

// The roles.
const (
	ControlPlane Role = "controlplane"
	Worker       Role = "worker"
)

// Range is "first-last" or a single value. A number in the configuration is read as its text.
type Range string

// UnmarshalJSON accepts a text or a number.
func (r *Range) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) != nil {
		s = string(b)
	}

	*r = Range(s)

	return nil
}

// Patch is a Talos machine configuration patch (a strategic merge or a JSON patch, as Talos defines them). In the
// configuration it is a text: the patch itself, or the path of a file that holds it, which is read before planning.
type Patch struct {
	Path   string // the configuration key it came from
	Origin string // the file it was read from, or the key again
	Text   string
}

// UnmarshalJSON reads the text.
func (p *Patch) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &p.Text) }

// Lifecycle bounds the program's own waits.
type Lifecycle struct {
	// ReadyTimeout bounds the wait for the control plane before the kubeconfig is fetched, "10m" when absent.
	ReadyTimeout string `json:"readyTimeout,omitempty" jsonschema:"description=How long to wait for the control plane before the kubeconfig is fetched.,default=10m"`
	// NodeTimeout bounds the wait for a node to answer before it is configured, "10m" when absent.
	NodeTimeout string `json:"nodeTimeout,omitempty" jsonschema:"description=How long to wait for a node to answer before its configuration is applied.,default=10m"`
}
