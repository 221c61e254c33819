package stacks

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/plan"
)

// Names of the stack outputs. Other programs rely on them.
const (
	OutputControlPlaneEndpoints = "talos_control_plane_endpoints"
	OutputBootstrapNodes        = "talos_bootstrap_nodes"
	OutputNodeIPMap             = "talos_node_ip_map"
	OutputNodeVMIDMap           = "talos_node_vmid_map"
	OutputContract              = "talos_bootstrap_contract"
	// OutputKubeconfig and OutputTalosconfig are secret.
	OutputKubeconfig  = "kubeconfig"
	OutputTalosconfig = "talosconfig"

	// The outputs of old, with outputs.legacy.
	OutputControlPlaneIPs   = "control_plane_ips"
	OutputWorkerIPs         = "worker_ips"
	OutputGPUWorkerIPs      = "gpu_worker_ips"
	OutputControlPlaneVMIDs = "control_plane_vmids"
	OutputWorkerVMIDs       = "worker_vmids"
	OutputGPUWorkerVMIDs    = "gpu_worker_vmids"
	OutputGPUWorkerPCIBDFs  = "gpu_worker_pci_bdfs"
)

// ContractVersion is the version of the contract's shape. It rises when a key changes its meaning or goes away.
const ContractVersion = 1

// Contract is the output talos_bootstrap_contract: what a consumer needs to know of a cluster, without its secrets.
type Contract struct {
	SchemaVersion int      `json:"schemaVersion"`
	Kind          string   `json:"kind"` // "talos"
	Cluster       string   `json:"cluster"`
	Versions      Versions `json:"versions"`
	// ControlPlaneEndpoints holds the known addresses of the control planes.
	ControlPlaneEndpoints []string       `json:"talos_control_plane_endpoints"`
	BootstrapNodes        BootstrapNodes `json:"talos_bootstrap_nodes"`
	// NodeIPMap leaves out nodes whose address is not known.
	NodeIPMap   map[string]string `json:"talos_node_ip_map"`
	NodeVMIDMap map[string]int    `json:"talos_node_vmid_map"`
}

// Versions of what runs in the cluster, with a leading v.
type Versions struct {
	Talos string `json:"talos"`
	// Kubernetes is empty when somebody else makes a cluster of the nodes.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// BootstrapNodes are the nodes by group, in plan order.
type BootstrapNodes struct {
	ControlPlane []BootstrapNode `json:"control_plane"`
	Workers      []BootstrapNode `json:"workers"`
	GPUWorkers   []BootstrapNode `json:"gpu_workers"`
}

// BootstrapNode is one node of the contract.
type BootstrapNode struct {
	Name string `json:"name"`
	VMID int    `json:"vmid"`
	// IP is nil when the address is not known.
	IP *string `json:"ip,omitempty"`
	// Host is where the VM is; "node" is what Proxmox VE, and the contract, call it.
	Host string `json:"node"`
	// GPU is the PCI address of the GPU passed through, nil without one.
	GPU *string `json:"gpu_pci_bdf,omitempty"`
}

// group is a group of the contract while it is put together.
type group struct {
	nodes, vmids, bdfs pulumi.Array
	addresses          []any
}

// groups are those of the contract, always all of them.
func groups(c *components.TalosCluster) map[string]*group {
	all := map[string]*group{}
	for _, name := range []string{plan.GroupControlPlane, plan.GroupWorkers, plan.GroupGPUWorkers} {
		all[name] = &group{nodes: pulumi.Array{}, vmids: pulumi.Array{}, bdfs: pulumi.Array{}}
	}

	made := c.Nodes

	for _, pool := range c.Plan.Pools {
		g := all[pool.Group()]

		for _, n := range pool.Nodes {
			node := made[0]
			made = made[1:]

			// An unknown address is absent, never an empty text: an entry without a value is left out.
			entry := pulumi.Map{"name": pulumi.String(n.Name), "vmid": node.VMID, "node": node.Host, "ip": node.IPAddress}
			if n.GPU != nil {
				entry["gpu_pci_bdf"] = pulumi.String(n.GPU.BDF)
				g.bdfs = append(g.bdfs, pulumi.String(n.GPU.BDF))
			}

			g.nodes = append(g.nodes, entry)
			g.vmids = append(g.vmids, node.VMID)
			g.addresses = append(g.addresses, node.IPAddress)
		}
	}

	return all
}

// known are the addresses of the group that are known.
func (g *group) known() pulumi.StringArrayOutput {
	return pulumi.All(g.addresses...).ApplyT(func(addresses []any) []string {
		found := []string{}

		for _, a := range addresses {
			if a := a.(*string); a != nil {
				found = append(found, *a)
			}
		}

		return found
	}).(pulumi.StringArrayOutput)
}

// outputs are the stack outputs of a cluster.
func outputs(c *components.TalosCluster) pulumi.Map {
	all := groups(c)
	control, workers, gpus := all[plan.GroupControlPlane], all[plan.GroupWorkers], all[plan.GroupGPUWorkers]
	addresses, vmids := pulumi.Map{}, pulumi.Map{}

	for i, n := range c.Plan.Nodes() {
		addresses[n.Name], vmids[n.Name] = c.Nodes[i].IPAddress, c.Nodes[i].VMID
	}

	shared := pulumi.Map{
		OutputControlPlaneEndpoints: control.known(),
		OutputBootstrapNodes: pulumi.Map{
			plan.GroupControlPlane: control.nodes, plan.GroupWorkers: workers.nodes, plan.GroupGPUWorkers: gpus.nodes,
		},
		OutputNodeIPMap:   addresses,
		OutputNodeVMIDMap: vmids,
	}

	versions := pulumi.Map{"talos": pulumi.String(c.Plan.Talos)}
	if c.Plan.Kubernetes != "" {
		versions["kubernetes"] = pulumi.String(c.Plan.Kubernetes)
	}

	contract := pulumi.Map{
		"schemaVersion": pulumi.Int(ContractVersion), "kind": pulumi.String("talos"), "cluster": pulumi.String(c.Plan.Cluster), "versions": versions,
	}
	maps.Copy(contract, shared)

	exported := pulumi.Map{OutputContract: contract}
	maps.Copy(exported, shared)

	if c.Plan.Bootstrap == plan.ByPulumi {
		exported[OutputKubeconfig] = pulumi.ToSecret(c.Kubeconfig)
		exported[OutputTalosconfig] = pulumi.ToSecret(c.Talosconfig)
	}

	if c.Plan.Outputs.Legacy {
		maps.Copy(exported, pulumi.Map{
			OutputControlPlaneIPs: control.known(), OutputWorkerIPs: workers.known(), OutputGPUWorkerIPs: gpus.known(),
			OutputControlPlaneVMIDs: control.vmids, OutputWorkerVMIDs: workers.vmids, OutputGPUWorkerVMIDs: gpus.vmids,
			OutputGPUWorkerPCIBDFs: gpus.bdfs,
		})
	}

	return exported
}

// Outputs is what a stack of this program offers to other stacks.
type Outputs struct {
	Contract Contract
	// Kubeconfig and Talosconfig are secret.
	Kubeconfig, Talosconfig pulumi.StringOutput
}

// ReadOutputs reads the outputs of another stack. The contract is there as plain values, so that it may shape the reading
// program's resources. It is an error when the stack has not been deployed.
func ReadOutputs(ref *pulumi.StackReference) (*Outputs, error) {
	details, err := ref.GetOutputDetails(OutputContract)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", OutputContract, err)
	}

	contract, err := DecodeContract(details.Value)
	if err != nil {
		return nil, err
	}

	secret := func(name string) pulumi.StringOutput {
		return pulumi.ToSecret(ref.GetStringOutput(pulumi.String(name))).(pulumi.StringOutput)
	}

	return &Outputs{Contract: *contract, Kubeconfig: secret(OutputKubeconfig), Talosconfig: secret(OutputTalosconfig)}, nil
}

// DecodeContract reads the contract from the value of the output talos_bootstrap_contract, as a StackReference, the
// Automation API or a JSON decoder gives it.
func DecodeContract(value any) (*Contract, error) {
	if value == nil {
		return nil, fmt.Errorf("the stack has no output %s: is it a stack of this program, and deployed?", OutputContract)
	}

	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("output %s: %w", OutputContract, err)
	}

	var c Contract
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("output %s does not have the contract's shape: %w", OutputContract, err)
	}

	if c.SchemaVersion != ContractVersion {
		return nil, fmt.Errorf("output %s has version %d of the contract, this program reads version %d",
			OutputContract, c.SchemaVersion, ContractVersion)
	}

	return &c, nil
}
