package components

import (
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
)

// GPUWorkerPoolArgs describe the nodes of one GPU pool.
type GPUWorkerPoolArgs struct {
	// Pool is the name of the pool.
	Pool string
	// Nodes by the name of their resources, each with a GPU. A mapping is made where the GPU is not passed raw and the
	// node names none.
	Nodes []GPUWorker
}

// GPUWorker is a node with a GPU.
type GPUWorker struct {
	// Name of the node's resources. It is the node's identity: removing one leaves the others alone.
	Name string
	// Args of the node.
	Args *TalosNodeArgs
	// Device is the GPU as its host describes it; nil: not known, which an update takes only where no mapping is to be
	// made.
	Device *proxmoxapi.PCIDevice
	// Exists says that an earlier update made the mapping. Without a Device it stays as it is.
	Exists bool
}

// gpuNode is a GPUWorker, with what its cluster knows of it.
type gpuNode struct {
	name   string
	args   *clusterNode
	device *proxmoxapi.PCIDevice
	exists bool
}

// makesMapping says that the pool makes the resource mapping of the GPU.
func (args TalosNodeArgs) makesMapping() bool { return !args.Node.GPU.Raw && args.Mapping == nil }

// GPUWorkerPool is a pool of nodes that each have a GPU of their host passed through. Hosts must have been prepared for
// that (IOMMU on, the GPU bound to vfio-pci): nothing is changed on them but the resource mappings of Proxmox VE.
type GPUWorkerPool struct {
	pulumi.ResourceState

	// VMIDs of the nodes, in the order given.
	VMIDs pulumi.IntArrayOutput `pulumi:"vmids"`

	// Nodes in the order given.
	Nodes []*TalosNode
}

// NewGPUWorkerPool creates the nodes of a GPU pool that belongs to no TalosCluster, and for each the resource mapping
// that lets an API token pass its GPU. What holds for NewTalosNode holds for each node.
func NewGPUWorkerPool(ctx *pulumi.Context, name string, args *GPUWorkerPoolArgs,
	opts ...pulumi.ResourceOption,
) (*GPUWorkerPool, error) {
	if args == nil || args.Pool == "" {
		return nil, errors.New("GPUWorkerPool " + name + ": the name of the pool is required")
	}

	owners := map[string]string{}

	for _, w := range args.Nodes {
		if w.Name == "" || w.Args == nil || w.Args.Node.GPU == nil {
			return nil, fmt.Errorf("GPUWorkerPool %s: each node needs a name and a GPU", name)
		}

		if w.Args.makesMapping() && w.Device == nil && !w.Exists && !ctx.DryRun() {
			return nil, fmt.Errorf("GPUWorkerPool %s: Device of %s is nil, but the resource mapping of its GPU is "+
				"created from it; set it to the device that proxmoxapi.Client.PCIDevices returns for %s, or set "+
				"Exists if an earlier update created the mapping", name,
				w.Name, w.Args.Node.GPU.BDF)
		}

		if err := w.Args.check(w.Name); err != nil {
			return nil, fmt.Errorf("GPUWorkerPool %s: %w", name, err)
		}

		for _, value := range unique(w) {
			if other, taken := owners[value]; taken {
				return nil, fmt.Errorf("GPUWorkerPool %s: %s and %s have the same %s", name, other, w.Name, value)
			}

			owners[value] = w.Name
		}
	}

	var nodes []gpuNode

	for _, w := range args.Nodes {
		node, err := standalone(ctx, w.Name, *w.Args)
		if err != nil {
			return nil, err
		}

		nodes = append(nodes, gpuNode{w.Name, node, w.Device, w.Exists})
	}

	return newGPUWorkerPool(ctx, name, args.Pool, nodes, opts...)
}

// unique are the values of a node that no other node of the pool may have.
func unique(w GPUWorker) []string {
	n := w.Args.Node
	values := []string{
		"resource name " + w.Name, "name " + n.Name, fmt.Sprintf("VMID %d", n.VMID), "GPU " + n.Host + " " + n.GPU.BDF,
	}

	for _, nic := range n.NICs {
		values = append(values, "MAC address "+nic.MAC)
	}

	return values
}

func newGPUWorkerPool(ctx *pulumi.Context, name, poolName string, nodes []gpuNode,
	opts ...pulumi.ResourceOption,
) (*GPUWorkerPool, error) {
	gpus := pulumi.StringMap{}
	for _, w := range nodes {
		gpus[w.args.Node.Name] = pulumi.String(w.args.Node.Host + " " + w.args.Node.GPU.BDF)
	}

	pool := &GPUWorkerPool{}
	if err := ctx.RegisterComponentResourceV2(GPUPoolType, name,
		pulumi.Map{"pool": pulumi.String(poolName), "gpus": gpus}, pool, opts...); err != nil {
		return nil, err
	}

	for _, w := range nodes {
		node, err := newGPUWorker(ctx, w, pulumi.Parent(pool))
		if err != nil {
			return nil, err
		}

		pool.Nodes = append(pool.Nodes, node)
	}

	vmids := pulumi.IntArray{}
	for _, node := range pool.Nodes {
		vmids = append(vmids, node.VMID)
	}

	pool.VMIDs = vmids.ToIntArrayOutput()

	return pool, ctx.RegisterResourceOutputs(pool, outputsOf(pool))
}

func newGPUWorker(ctx *pulumi.Context, w gpuNode, opts ...pulumi.ResourceOption) (*TalosNode, error) {
	if err := w.passThrough(ctx, opts...); err != nil {
		return nil, err
	}

	return newTalosNode(ctx, w.name, w.args, opts...)
}

// passThrough makes the resource mapping of the GPU, unless the node has one or gets the GPU by its address.
func (w gpuNode) passThrough(ctx *pulumi.Context, opts ...pulumi.ResourceOption) (err error) {
	if !w.args.makesMapping() {
		return nil
	}

	// Where the VM waits, so does its mapping: what is wrong with the VM is said first.
	waiting := append([]pulumi.ResourceOption{
		pulumi.DependsOn(w.args.after), pulumi.ResourceHooks(w.args.mappingHooks),
	}, opts...)
	w.args.Mapping, err = proxmoxvm.NewMapping(ctx, w.name, w.args.Node, w.device, waiting...)

	return err
}
