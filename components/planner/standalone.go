package planner

import (
	"cmp"
	"strconv"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/planner/ranges"
	"talos-proxmox/components/spec"
)

// NodeArgs are the values of one node that belongs to no planned cluster.
type NodeArgs struct {
	// Name of the VM, a DNS label.
	Name string
	// Cluster that the node is a part of; its VM is tagged with it. Empty: Name.
	Cluster string
	// Role of the node. Empty: worker.
	Role spec.Role
	// Pool that the node is a part of. Empty: the role.
	Pool string
	// Host that the VM is created on.
	Host string
	// VMID of the VM, from 100 on.
	VMID int
	// Address of the node, "10.0.0.11". Empty: not known in advance.
	Address string
	// MAC address of the first network interface. Empty: derived from the names of cluster and node.
	MAC string
	// Template to clone, a name or a VMID. Empty: the VM boots an image.
	Template spec.TemplateRef
	// ISO says that this image is an ISO file; otherwise it is a disk image, which becomes the system disk.
	ISO bool
	// CloudInit gives the VM a cloud-init drive.
	CloudInit bool
	// GPU of the host that is passed through; nil: none.
	GPU *plan.GPU
	// Datastore of disks, and Bridge of network interfaces, that name none. Empty: local-lvm and vmbr0.
	Datastore, Bridge string
	// VM is what the VM is like; what it leaves out has the defaults of a stack's configuration.
	VM spec.VMSpec
}

// NewNode plans one node of its own values, by the rules that nodes of a cluster are planned by. The error holds all
// problems (spec.Problems), with paths that begin with "node".
func NewNode(a NodeArgs) (plan.Node, error) {
	var r resolver

	r.Spec = spec.Spec{
		Proxmox: spec.Proxmox{Storage: spec.Storage{Disks: a.Datastore}},
		Cluster: spec.Cluster{Name: cmp.Or(a.Cluster, a.Name), Bootstrap: spec.BootstrapExternal},
		Network: spec.Network{Bridge: a.Bridge},
		// Proxmox VE refuses a raw GPU to who may not pass it.
		Provided: spec.SecretsProvided{RootPassword: true},
	}
	p := &pool{path: "node", Pool: spec.Pool{Role: cmp.Or(a.Role, spec.RoleWorker), Names: a.Name, VMSpec: a.VM}}
	image := plan.BootImage{Template: string(a.Template), Format: spec.FormatDisk}

	switch {
	case a.Template != "":
		r.Spec.Image.Source, image.Format = spec.SourceTemplate, ""
	case a.ISO:
		r.Spec.Image.Source, image.Format = spec.SourceISO, spec.FormatISO
	}

	if a.CloudInit {
		r.Spec.Image.Platform, r.Spec.Network.Addressing = spec.PlatformNoCloud, spec.AddressingStatic
	}

	node := poolNode{ordinal: 1, path: p.path, NodeSpec: &spec.NodeSpec{Host: a.Host, MAC: a.MAC, Address: a.Address}}

	if a.GPU != nil {
		node.gpu = &spec.GPUSpec{BDF: a.GPU.BDF, PCIe: &a.GPU.PCIe, ROMBar: &a.GPU.ROMBar, Raw: a.GPU.Raw}
		p.GPUs = map[string]spec.GPUSpec{"1": *node.gpu}
	}

	r.Spec.SetDefaults()
	p.name = cmp.Or(a.Pool, string(p.Role))
	p.vmDefaults = spec.DefaultVM(spec.DistributionTalos).With(spec.VMSpec{Protection: new(false)}).With(a.VM)
	p.planned = plan.PlannedPool{Name: p.name, Role: p.Role, GPU: a.GPU != nil, Image: image}
	p.members, p.vmids = []poolNode{node}, ranges.Intervals[int]{{First: a.VMID, Last: a.VMID}}
	r.pools = []*pool{p}

	checks.OneOf(&r.Problems, "node.role", p.Role, spec.RoleControlPlane, spec.RoleWorker)

	for _, name := range []struct{ path, value string }{
		{"node.name", a.Name}, {"node.cluster", r.Spec.Cluster.Name}, {"node.pool", p.name},
	} {
		if !checks.IsLabel(name.value) {
			r.Problems.Add(name.path, "must be a DNS label: lower case letters, digits and dashes", name.value, "rename it")
		}
	}

	if a.Host == "" {
		r.Problems.Add("node.host", "is required", "", "name the host of Proxmox VE that the VM is created on")
	}

	if a.VMID < ranges.MinVMID || a.VMID > ranges.MaxVMID {
		r.Problems.Add("node.vmid", "must be a VMID, from "+strconv.Itoa(ranges.MinVMID)+" to "+strconv.Itoa(ranges.MaxVMID),
			strconv.Itoa(a.VMID), "choose a free one")
	}

	r.checkVMSpecs()
	r.makeNodes(p)
	r.checkIdentity()

	if err := r.Problems.Err(); err != nil {
		return plan.Node{}, err
	}

	made := p.planned.Nodes[0]
	made.Host = a.Host

	return made, nil
}

// Standalone is the plan of a cluster that consists of one node and that the program does not bootstrap. Its waits have
// the defaults of a stack's configuration.
func Standalone(n plan.Node) *plan.Plan {
	r := resolver{}
	r.Spec.SetDefaults()

	p := &plan.Plan{
		Environment: r.Spec.Environment, Cluster: n.Cluster, Distribution: spec.DistributionTalos,
		Bootstrap: spec.BootstrapExternal,
		Pools:     []plan.PlannedPool{{Name: n.Pool, Role: n.Role, GPU: n.GPU != nil, Nodes: []plan.Node{n}}},
	}
	r.checkLifecycle(p)

	return p
}
