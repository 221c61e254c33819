package stacks

import (
	"errors"
	"maps"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/components"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/stacks/contract"
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

// shared are the outputs that clusters of every kind have, the legacy outputs with them where they are wanted.
func shared(p *plan.Plan, made []member, all map[string]*group, versions pulumi.Map) pulumi.Map {
	control, workers, gpus := all[plan.GroupControlPlane], all[plan.GroupWorkers], all[plan.GroupGPUWorkers]
	addresses, vmids := pulumi.Map{}, pulumi.Map{}

	for i, n := range p.Nodes() {
		addresses[n.Name], vmids[n.Name] = made[i].address, made[i].vmid
	}

	inventory := pulumi.Map{
		contract.OutputControlPlaneEndpoints: control.known(),
		contract.OutputBootstrapNodes: pulumi.Map{
			plan.GroupControlPlane: control.nodes, plan.GroupWorkers: workers.nodes, plan.GroupGPUWorkers: gpus.nodes,
		},
		contract.OutputNodeIPMap:   addresses,
		contract.OutputNodeVMIDMap: vmids,
	}

	whole := pulumi.Map{
		"schemaVersion": pulumi.Int(contract.SchemaVersion), "kind": pulumi.String(p.Distribution),
		"cluster": pulumi.String(p.Cluster), "versions": versions,
	}
	maps.Copy(whole, inventory)

	exported := pulumi.Map{contract.OutputContract: whole}
	maps.Copy(exported, inventory)

	if p.Outputs.Legacy {
		maps.Copy(exported, pulumi.Map{
			contract.OutputControlPlaneIPs: control.known(), contract.OutputWorkerIPs: workers.known(),
			contract.OutputGPUWorkerIPs:      gpus.known(),
			contract.OutputControlPlaneVMIDs: control.vmids, contract.OutputWorkerVMIDs: workers.vmids,
			contract.OutputGPUWorkerVMIDs:   gpus.vmids,
			contract.OutputGPUWorkerPCIBDFs: gpus.bdfs,
		})
	}

	return exported
}

// outputs are the outputs of a stack with one cluster of Talos.
func outputs(c *components.TalosCluster, stack string) (pulumi.Map, error) {
	versions := pulumi.Map{"talos": pulumi.String(c.Plan.Talos)}
	if c.Plan.Kubernetes != "" {
		versions["kubernetes"] = pulumi.String(c.Plan.Kubernetes)
	}

	made := talosMembers(c)
	all := groups(c.Plan, made)
	exported := shared(c.Plan, made, all, versions)

	ids, err := schematics(c.Plan)
	if len(ids) > 0 {
		exported[contract.OutputSchematics] = ids
	}

	if c.Plan.Bootstrap == spec.BootstrapPulumi {
		control, workers, gpus := all[plan.GroupControlPlane], all[plan.GroupWorkers], all[plan.GroupGPUWorkers]

		exported[contract.OutputKubeconfig] = pulumi.ToSecret(c.Kubeconfig)
		exported[contract.OutputKubernetesCredentials] = kubernetesCredentials(c.Kubeconfig)
		exported[contract.OutputTalosconfig] = pulumi.ToSecret(c.Talosconfig)

		if c.Plan.Outputs.WorkerConfiguration != "" {
			exported[contract.OutputWorkerConfiguration] = pulumi.ToSecret(c.WorkerConfiguration)
		}

		exported[contract.OutputCredentialsExpiry] = pulumi.Map{
			contract.OutputKubeconfig:  c.KubeconfigExpiry,
			contract.OutputTalosconfig: c.TalosconfigExpiry,
		}
		exported[contract.OutputNextSteps] = nextSteps(c, stack, control.known(),
			pulumi.All(slices.Concat(control.addresses, workers.addresses, gpus.addresses)...))
	}

	return exported, err
}

// kubernetesCredentials are those of a kubeconfig, for tools that take no file.
func kubernetesCredentials(kubeconfig pulumi.StringOutput) pulumi.Output {
	return pulumi.ToSecret(kubeconfig.ApplyT(func(text string) (map[string]string, error) {
		c, err := clientcmd.RESTConfigFromKubeConfig([]byte(text))
		if err != nil {
			return nil, errors.New("the kubeconfig cannot be read") // what it says may quote it
		}

		return map[string]string{
			"host": c.Host, "cluster_ca_certificate": string(c.CAData),
			"client_certificate": string(c.CertData), "client_key": string(c.KeyData),
		}, nil
	}))
}

// schematics are the ids of nodes by name, without those whose image carries nothing.
func schematics(p *plan.Plan) (pulumi.StringMap, error) {
	ids := pulumi.StringMap{}

	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			id, err := talosimage.SchematicID(p, pool.Image, n)
			if err != nil {
				return nil, err
			}

			if id != "" {
				ids[n.Name] = pulumi.String(id)
			}
		}
	}

	return ids, nil
}
