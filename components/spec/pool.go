package spec

// Pool is a set of nodes of one role and shape. It has one of count, nodes and gpus.
type Pool struct {
	// Role of the pool's nodes.
	Role Role `json:"role" jsonschema:"enum=controlplane,enum=worker"`
	// Number of nodes, 1 to count. Node n permanently has the nth VMID and the nth address of the pool.
	Count *int `json:"count,omitempty" jsonschema:"minimum=0,maximum=10000"`
	// Nodes by number, each with its own settings. Instead of count.
	Nodes map[string]NodeSpec `json:"nodes,omitempty"`
	// GPU nodes by number, one node for each GPU. Instead of count.
	GPUs map[string]GPUSpec `json:"gpus,omitempty"`
	// VMIDs of the pool, for example 401-449. Absent: from 401 for the only pool of control planes, from 501 for the only
	// one of workers, from 601 for the only one of GPU workers.
	VMIDs Range `json:"vmids,omitempty"`
	// Addresses of the pool, for example 10.0.0.11-10.0.0.13. Required with addressing static and reserved.
	Addresses Range `json:"addresses,omitempty"`
	// Pattern of node names; {nn} and {nnn} pad the number with zeros. With one node, it needs no number.
	Names string `json:"names,omitempty" jsonschema:"default={cluster}-{pool}-{n}"`
	// Overrides network.addressing reserved: static writes the address of each node to its machine configuration,
	// once the node was reached at it. The node then needs no reservation. No VM is replaced.
	Addressing Addressing `json:"addressing,omitempty" jsonschema:"enum=static"`
	// Host of all nodes of the pool that do not name one.
	Host string `json:"host,omitempty"`
	// Boot image of the pool, instead of image.
	Image PoolImage `json:"image,omitempty"`
	// Talos machine configuration patches for the nodes of this pool, after those of the cluster.
	Patches []Patch `json:"patches,omitempty"`

	VMSpec
}

// NodeSpec is what a node has of its own.
type NodeSpec struct {
	// Host that the VM is created on. Absent: chosen by placement.
	Host string `json:"host,omitempty"`
	// MAC address of the first network interface. Absent: derived from the names of cluster and node.
	MAC string `json:"mac,omitempty"`
	// Address of the node, instead of that from the pool's range.
	Address string `json:"address,omitempty"`
	// As for the pool, for this node.
	Addressing Addressing `json:"addressing,omitempty" jsonschema:"enum=static"`
	// Talos machine configuration patches for this node, after those of the pool.
	Patches []Patch `json:"patches,omitempty"`

	VMSpec
}

// GPUSpec is a node with a GPU of its host.
type GPUSpec struct {
	// PCI address of the GPU on its host, for example 0000:01:00.0; 0000:01:00 means all its functions.
	BDF string `json:"bdf"`
	// Present the GPU as a PCI Express device.
	PCIe *bool `json:"pcie,omitempty" jsonschema:"default=true"`
	// Expose the GPU's ROM to the guest.
	ROMBar *bool `json:"rombar,omitempty" jsonschema:"default=true"`
	// Pass the GPU by its address, without a resource mapping. Proxmox VE allows this only to root@pam with a
	// password.
	Raw bool `json:"raw,omitempty" jsonschema:"default=false"`

	NodeSpec
}

// Role of a node.
type Role string

// The roles.
const (
	RoleControlPlane Role = "controlplane"
	RoleWorker       Role = "worker"
)

// Range is "first-last", a single value, or several of them with commas between. A number in the configuration is read
// as its text.
type Range string

// UnmarshalJSON accepts a text or a number.
func (r *Range) UnmarshalJSON(b []byte) error {
	*r = Range(textOf(b))

	return nil
}
