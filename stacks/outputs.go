package stacks

import (
	"fmt"
	"maps"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
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

	// OutputCredentialsExpiry says until when kubeconfig and talosconfig are good.
	OutputCredentialsExpiry = "credentials_expiry"
	// OutputHints are commands to go on with.
	OutputHints = "hints"

	// OutputSSHPrivateKey logs in to K3s nodes, secret; with k3s.generateSSHKey.
	OutputSSHPrivateKey = "ssh_private_key"
	// OutputK3s is how a cluster of K3s is: the health of its nodes, and how to reach them.
	OutputK3s = "k3s_status"

	// The outputs of old, with outputs.legacy.
	OutputControlPlaneIPs   = "control_plane_ips"
	OutputWorkerIPs         = "worker_ips"
	OutputGPUWorkerIPs      = "gpu_worker_ips"
	OutputControlPlaneVMIDs = "control_plane_vmids"
	OutputWorkerVMIDs       = "worker_vmids"
	OutputGPUWorkerVMIDs    = "gpu_worker_vmids"
	OutputGPUWorkerPCIBDFs  = "gpu_worker_pci_bdfs"
)

// group is a group of the contract while it is put together.
type group struct {
	nodes, vmids, bdfs pulumi.Array
	addresses          []any
}

// member is a node that was made, whatever it runs.
type member struct {
	vmid    pulumi.IntOutput
	host    pulumi.StringOutput
	address pulumi.StringPtrOutput
}

func talosMembers(c *components.TalosCluster) []member {
	var all []member
	for _, n := range c.Nodes {
		all = append(all, member{n.VMID, n.Host, n.IPAddress})
	}

	return all
}

// groups are those of the contract, always all of them. The members are the plan's nodes, in its order.
func groups(p *plan.Plan, made []member) map[string]*group {
	all := map[string]*group{}
	for _, name := range []string{plan.GroupControlPlane, plan.GroupWorkers, plan.GroupGPUWorkers} {
		all[name] = &group{nodes: pulumi.Array{}, vmids: pulumi.Array{}, bdfs: pulumi.Array{}}
	}

	for _, pool := range p.Pools {
		g := all[pool.Group()]

		for _, n := range pool.Nodes {
			node := made[0]
			made = made[1:]

			// An unknown address is absent, never an empty text: an entry without a value is left out.
			entry := pulumi.Map{"name": pulumi.String(n.Name), "vmid": node.vmid, "node": node.host, "ip": node.address}
			if n.GPU != nil {
				entry["gpu_pci_bdf"] = pulumi.String(n.GPU.BDF)
				g.bdfs = append(g.bdfs, pulumi.String(n.GPU.BDF))
			}

			g.nodes = append(g.nodes, entry)
			g.vmids = append(g.vmids, node.vmid)
			g.addresses = append(g.addresses, node.address)
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

// shared are the outputs that clusters of every kind have, the outputs of old with them where they are wanted.
func shared(p *plan.Plan, made []member, all map[string]*group, versions pulumi.Map) pulumi.Map {
	control, workers, gpus := all[plan.GroupControlPlane], all[plan.GroupWorkers], all[plan.GroupGPUWorkers]
	addresses, vmids := pulumi.Map{}, pulumi.Map{}

	for i, n := range p.Nodes() {
		addresses[n.Name], vmids[n.Name] = made[i].address, made[i].vmid
	}

	inventory := pulumi.Map{
		OutputControlPlaneEndpoints: control.known(),
		OutputBootstrapNodes: pulumi.Map{
			plan.GroupControlPlane: control.nodes, plan.GroupWorkers: workers.nodes, plan.GroupGPUWorkers: gpus.nodes,
		},
		OutputNodeIPMap:   addresses,
		OutputNodeVMIDMap: vmids,
	}

	contract := pulumi.Map{
		"schemaVersion": pulumi.Int(ContractVersion), "kind": pulumi.String(p.Distribution), "cluster": pulumi.String(p.Cluster), "versions": versions,
	}
	maps.Copy(contract, inventory)

	exported := pulumi.Map{OutputContract: contract}
	maps.Copy(exported, inventory)

	if p.Outputs.Legacy {
		maps.Copy(exported, pulumi.Map{
			OutputControlPlaneIPs: control.known(), OutputWorkerIPs: workers.known(), OutputGPUWorkerIPs: gpus.known(),
			OutputControlPlaneVMIDs: control.vmids, OutputWorkerVMIDs: workers.vmids, OutputGPUWorkerVMIDs: gpus.vmids,
			OutputGPUWorkerPCIBDFs: gpus.bdfs,
		})
	}

	return exported
}

// outputs are the outputs of a stack with one cluster of Talos.
func outputs(c *components.TalosCluster, stack string) pulumi.Map {
	versions := pulumi.Map{"talos": pulumi.String(c.Plan.Talos)}
	if c.Plan.Kubernetes != "" {
		versions["kubernetes"] = pulumi.String(c.Plan.Kubernetes)
	}

	made := talosMembers(c)
	all := groups(c.Plan, made)
	exported := shared(c.Plan, made, all, versions)

	if c.Plan.Bootstrap == spec.BootstrapPulumi {
		control, workers, gpus := all[plan.GroupControlPlane], all[plan.GroupWorkers], all[plan.GroupGPUWorkers]

		exported[OutputKubeconfig] = pulumi.ToSecret(c.Kubeconfig)
		exported[OutputTalosconfig] = pulumi.ToSecret(c.Talosconfig)
		exported[OutputCredentialsExpiry] = pulumi.Map{OutputKubeconfig: c.KubeconfigExpiry, OutputTalosconfig: c.TalosconfigExpiry}
		exported[OutputHints] = hints(c, stack, control.known(), pulumi.All(slices.Concat(control.addresses, workers.addresses, gpus.addresses)...))
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
