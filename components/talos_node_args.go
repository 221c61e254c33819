package components

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmimage"
	"talos-proxmox/components/spec"
)

// talosMachines says what the nodes of a cluster are made of.
type talosMachines struct {
	ctx       *pulumi.Context
	name      string
	plan      *plan.Plan
	report    *preflight.Report
	proxmox   Proxmox
	hooks     talosHooks
	addresses *proxmoxvm.AddressBook
	images    *vmimage.Images
	child     pulumi.ResourceOption

	// secrets keep the identity of the cluster in the state; none where it is imported.
	secrets []pulumi.Resource
	// creationOrder is what the VMs of workers wait for.
	creationOrder *creationOrder
}

// node is what a node of the plan is made of.
func (m *talosMachines) node(pool plan.PlannedPool, n plan.Node) (*clusterNode, error) {
	p := m.plan

	state, err := vmState(m.hooks.scope, m.report, m.name, n)
	if err != nil {
		return nil, err
	}

	args := &clusterNode{
		TalosNodeArgs: TalosNodeArgs{
			Node: n, Origin: origin(p, pool.Image), Rebalance: p.Rebalance, Replace: p.Replaces(n.Name),
			AgentTimeout: p.AgentTimeout.String(), Firewall: pool.FirewallRules(), Proxmox: m.proxmox,
		},
		hooks: m.hooks.of(m.hooks.checkVMIDFree), companions: m.hooks.ofCompanions(), after: m.before(n),
		incomplete: m.report.Incomplete(n), absent: m.report.AbsentVMIDs()[n.VMID], state: state,
		identities: m.hooks.scope.Identities, identified: m.hooks.uuids[n.Name].Set,
		mappingHooks: m.hooks.ofMappings(),
	}

	if n.CloudInit != "" {
		args.CloudInit = &proxmoxvm.CloudInit{
			Address: netip.PrefixFrom(n.Address, p.Network.Bits()), Gateway: p.Gateway,
			Nameservers: p.Nameservers,
		}
	}

	if args.Discovery = proxmoxvm.DiscoveryOf(p, m.proxmox); args.Discovery != nil {
		args.Discovery.Optional = p.Bootstrap == spec.BootstrapExternal
		args.Discovery.OnFound = func(address string) { m.addresses.Set(n.Name, address) }
	}

	if n.Template != "" {
		args.Template = templateInput(m.report, n)

		return args, nil
	}

	args.hooks = m.hooks.of(m.hooks.checkVMIDFree, m.hooks.checkImage)

	return args, m.boot(args, pool.Image)
}

// boot says what a node boots that is no clone.
func (m *talosMachines) boot(args *clusterNode, image plan.BootImage) error {
	fetch, err := vmimage.DownloadOf(m.plan, image, args.Node, m.hooks.ofImages(image.Keep))

	switch {
	case err != nil:
		return err
	case fetch == nil:
		args.Image = pulumi.String(image.Volume)
	case image.Scope == plan.PerNode:
		args.fetch = fetch
	default:
		args.Image, err = m.images.Volume(m.ctx, fetch, args.Node.Host, image.Scope == plan.PerCluster)
	}

	return err
}

// before is what must be done before a VM that is there may change: draining its node needs the credentials of the
// cluster, and control planes go before workers.
func (m *talosMachines) before(n plan.Node) []pulumi.Resource {
	switch {
	case n.Role == spec.RoleWorker:
		return m.creationOrder.dependencies(m.report.Exists(n))
	case m.report.Exists(n):
		return m.secrets
	default:
		return nil
	}
}

// gpuNode is a node with what is known of its GPU.
func (m *talosMachines) gpuNode(a *clusterNode) gpuNode {
	return gpuNode{plan.ResourceName(m.name, a.Node), a, m.report.Device(a.Node), m.report.Exists(a.Node)}
}

// passThrough has a node that is in no GPU pool get its GPU, if it has one.
func (m *talosMachines) passThrough(a *clusterNode) error {
	if a.Node.GPU == nil {
		return nil
	}

	return m.gpuNode(a).passThrough(m.ctx, m.child)
}

// gpuPool creates the nodes of a GPU pool.
func (m *talosMachines) gpuPool(pool plan.PlannedPool, all []*clusterNode) ([]*TalosNode, error) {
	var nodes []gpuNode
	for _, a := range all {
		nodes = append(nodes, m.gpuNode(a))
	}

	made, err := newGPUWorkerPool(m.ctx, m.name+"-"+pool.Name, pool.Name, nodes, m.child)
	if err != nil {
		return nil, err
	}

	return made.Nodes, nil
}

// origin says what a node is made from.
func origin(p *plan.Plan, image plan.BootImage) string {
	from := "Talos " + p.Talos + ", "

	switch {
	case image.Template != "":
		return from + "template " + image.Template
	case image.Volume != "":
		return from + "ISO file " + image.Volume
	case image.URL != "":
		return from + "ISO file " + image.URL
	default:
		from += "factory image"
		if image.SecureBoot {
			from += " for SecureBoot"
		}

		if all := slices.Concat(image.Extensions, image.KernelArgs); len(all) > 0 {
			from += " with " + spec.HideSecrets(strings.Join(all, " "))
		}

		return from
	}
}

// talosConfiguration renders the machine configuration of the nodes of a cluster.
type talosConfiguration struct {
	ctx     *pulumi.Context
	plan    *plan.Plan
	secrets machineSecrets
	// endpoint of the Kubernetes API.
	endpoint pulumi.StringOutput
	// tailscaleKey lets nodes join the tailnet, manifests are those with secrets, and logins those of registries; nil:
	// none.
	tailscaleKey, manifests, logins pulumi.StringInput
	// invoke makes functions use the cluster's providers.
	invoke pulumi.InvokeOption
}

// ofPool is the configuration that the nodes of a pool share, secret.
func (c *talosConfiguration) ofPool(pool plan.PlannedPool) pulumi.StringOutput {
	own := c.rendered(func(p *plan.Plan) ([]string, error) { return machineconfig.Patches(p, pool) })

	patches := pulumi.All(c.secretPatches(pool), own, c.registryLogins()).ApplyT(func(all []any) []string {
		return slices.Concat(all[0].([]string), all[2].([]string), all[1].([]string))
	}).(pulumi.StringArrayOutput)

	found := machine.GetConfigurationOutput(c.ctx, machine.GetConfigurationOutputArgs{
		ClusterName:       pulumi.String(c.plan.Cluster),
		ClusterEndpoint:   c.endpoint,
		MachineType:       pulumi.String(pool.Role),
		MachineSecrets:    c.secrets.machine,
		TalosVersion:      c.secrets.contract,
		KubernetesVersion: pulumi.String(strings.TrimPrefix(c.plan.Kubernetes, "v")),
		ConfigPatches:     patches,
		Docs:              pulumi.Bool(false),
		Examples:          pulumi.Bool(false),
	}, c.invoke)

	return pulumi.ToSecret(found.MachineConfiguration()).(pulumi.StringOutput)
}

// secretPatches are those of a pool that hold secrets, but for logins of registries.
func (c *talosConfiguration) secretPatches(pool plan.PlannedPool) pulumi.StringArray {
	var patches pulumi.StringArray

	if pool.Tailnet {
		patches = append(patches, pulumi.ToSecret(c.tailscaleKey).(pulumi.StringOutput).ApplyT(
			func(key string) (string, error) { return machineconfig.Tailscale(c.plan, pool, key) }).(pulumi.StringOutput))
	}

	if pool.Role != spec.RoleControlPlane {
		return patches
	}

	patches = append(patches, etcdEncryption(c.secrets.machine))

	if c.manifests != nil {
		patches = append(patches, pulumi.ToSecret(c.manifests).(pulumi.StringOutput).ApplyT(
			func(text string) (string, error) { return machineconfig.SecretManifests(pool, text) }).(pulumi.StringOutput))
	}

	return patches
}

// registryLogins are the patches that log in to registries.
func (c *talosConfiguration) registryLogins() pulumi.StringArrayOutput {
	if c.logins == nil {
		return pulumi.StringArray{}.ToStringArrayOutput()
	}

	return pulumi.All(c.secrets.contract, pulumi.ToSecret(c.logins)).ApplyT(func(all []any) ([]string, error) {
		return machineconfig.RegistryLogins(c.plan.WithContract(all[0].(string)), all[1].(string))
	}).(pulumi.StringArrayOutput)
}

// ofNode are the patches with what is particular to a node.
func (c *talosConfiguration) ofNode(n plan.Node) pulumi.StringArrayOutput {
	return c.rendered(func(p *plan.Plan) ([]string, error) { return machineconfig.NodePatches(p, n) })
}

// rendered are patches, written with the defaults of the version that the cluster was made with.
func (c *talosConfiguration) rendered(render func(*plan.Plan) ([]string, error)) pulumi.StringArrayOutput {
	return c.secrets.contract.ApplyT(func(contract string) ([]string, error) {
		return render(c.plan.WithContract(contract))
	}).(pulumi.StringArrayOutput)
}
