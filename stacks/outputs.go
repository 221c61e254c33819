package stacks

import (
	"encoding/json"
	"fmt"

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
	Talos      string `json:"talos"`
	Kubernetes string `json:"kubernetes"`
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

// outputs are the stack outputs of a cluster.
func outputs(c *components.TalosCluster) pulumi.Map {
	var (
		endpoints = pulumi.Array{}
		groups    = map[plan.Role]pulumi.Array{plan.ControlPlane: {}, plan.Worker: {}}
		addresses = pulumi.Map{}
		vmids     = pulumi.Map{}
	)

	for i, n := range c.Plan.Nodes() {
		node := c.Nodes[i]
		entry := pulumi.Map{"name": pulumi.String(n.Name), "vmid": node.VMID, "node": node.Host}
		vmids[n.Name] = node.VMID

		// An unknown address is absent, never an empty text.
		if n.Address.IsValid() {
			address := pulumi.String(n.Address.String())
			entry["ip"] = address
			addresses[n.Name] = address

			if n.Role == plan.ControlPlane {
				endpoints = append(endpoints, address)
			}
		}

		groups[n.Role] = append(groups[n.Role], entry)
	}

	contract := pulumi.Map{
		OutputControlPlaneEndpoints: endpoints,
		OutputBootstrapNodes: pulumi.Map{
			"control_plane": groups[plan.ControlPlane], "workers": groups[plan.Worker], "gpu_workers": pulumi.Array{},
		},
		OutputNodeIPMap:   addresses,
		OutputNodeVMIDMap: vmids,
	}

	all := pulumi.Map{
		OutputKubeconfig:  pulumi.ToSecret(c.Kubeconfig),
		OutputTalosconfig: pulumi.ToSecret(c.Talosconfig),
		OutputContract: pulumi.Map{
			"schemaVersion": pulumi.Int(ContractVersion),
			"kind":          pulumi.String("talos"),
			"cluster":       pulumi.String(c.Plan.Cluster),
			"versions":      pulumi.Map{"talos": pulumi.String(c.Plan.Talos), "kubernetes": pulumi.String(c.Plan.Kubernetes)},
		},
	}

	for name, value := range contract {
		all[name] = value
		all[OutputContract].(pulumi.Map)[name] = value
	}

	return all
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
