package components

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/client"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// TalosClusterArgs describe one cluster.
type TalosClusterArgs struct {
	// Plan is every decision; see planner.Plan.
	Plan *plan.Plan
	// Preflight is the report of preflight.Run for the plan. An update requires it; nil, in a preview, means that
	// Proxmox VE did not answer.
	Preflight *preflight.Report
	// Proxmox is asked by what runs between steps.
	Proxmox Proxmox
	// TailscaleAuthKey lets nodes join the tailnet. It is required where the plan has one, and kept secret.
	TailscaleAuthKey pulumi.StringInput
	// BackupPassphrase encrypts snapshots of etcd where the plan has no recipients; empty: they are not encrypted.
	BackupPassphrase string
	// SecretManifests are Kubernetes manifests and RegistryLogins logins of registries, as YAML. They are required where
	// the plan says so, and kept secret.
	SecretManifests, RegistryLogins pulumi.StringInput
	// MachineSecrets is a Talos secrets bundle: the identity of a cluster that is taken over. It is required where the
	// plan says so, and kept secret; otherwise one is made and kept in state.
	MachineSecrets pulumi.StringInput
	// Destroying says that the run destroys the cluster: each VM is looked at before it is deleted, after a teardown as
	// well, and a run that would leave protected VMs is refused.
	Destroying bool
	// ProjectDir is where relative paths of the plan begin, such as that of etcd snapshots; empty: the working directory.
	ProjectDir string
}

// TalosCluster is a Kubernetes cluster of Talos machines.
type TalosCluster struct {
	pulumi.ResourceState

	// Endpoint of the Kubernetes API, "https://10.0.0.11:6443". With bootstrap: external, this and the texts that follow
	// are empty, and the rest is nil or zero.
	Endpoint pulumi.StringOutput `pulumi:"endpoint"`
	// Kubeconfig of an administrator, secret. It is known when the API answers.
	Kubeconfig pulumi.StringOutput `pulumi:"kubeconfig"`
	// Talosconfig of an administrator, secret.
	Talosconfig pulumi.StringOutput `pulumi:"talosconfig"`

	// KubeconfigExpiry is when the kubeconfig expires (RFC 3339). Any update in the last month before renews it, or
	// within lifecycle.kubeconfigRenewal.
	KubeconfigExpiry pulumi.StringPtrOutput `pulumi:"kubeconfigExpiry"`
	// TalosconfigExpiry is when the talosconfig expires, likewise.
	TalosconfigExpiry pulumi.StringPtrOutput `pulumi:"talosconfigExpiry"`

	// MachineSecrets are the identity of the cluster, secret.
	MachineSecrets machine.MachineSecretsOutput `pulumi:"machineSecrets"`
	// ControlPlaneConfiguration is the machine configuration of the first pool of control planes, without what is
	// particular to a node, secret.
	ControlPlaneConfiguration pulumi.StringOutput `pulumi:"controlPlaneConfiguration"`
	// WorkerConfiguration is that of the pool of workers that outputs.workerConfiguration names, else of the first one;
	// empty without workers.
	WorkerConfiguration pulumi.StringOutput `pulumi:"workerConfiguration"`

	// Nodes in plan order, next to the plan's nodes.
	Nodes []*TalosNode
	// Plan that was carried out.
	Plan *plan.Plan
}

// NewTalosCluster creates a cluster: machines, their configuration, the bootstrap, and the credentials to use it. With
// bootstrap: external, it creates the machines only. It needs a proxmoxve and a talos
// provider, which come with the options or from the parent.
func NewTalosCluster(ctx *pulumi.Context, name string, args *TalosClusterArgs,
	opts ...pulumi.ResourceOption,
) (*TalosCluster, error) {
	switch {
	case args == nil || args.Plan == nil || args.Proxmox == nil:
		return nil, errors.New("TalosCluster " + name + ": a plan and access to Proxmox VE are required")
	case args.Preflight == nil && !ctx.DryRun():
		return nil, errors.New("TalosCluster " + name + noReport)
	case args.Plan.Tailscale != nil && args.TailscaleAuthKey == nil:
		return nil, errors.New("TalosCluster " + name + ": the plan has a tailnet, so TailscaleAuthKey is required")
	case args.Plan.SecretManifests != (args.SecretManifests != nil),
		args.Plan.RegistryLogins != (args.RegistryLogins != nil):
		return nil, errors.New("TalosCluster " + name +
			": SecretManifests and RegistryLogins are required if, and only if, the plan has them")
	case args.Plan.ImportSecrets != (args.MachineSecrets != nil):
		return nil, errors.New("TalosCluster " + name +
			": MachineSecrets are required if, and only if, the plan imports existing ones")
	}

	p := args.Plan
	c := &TalosCluster{Plan: p}
	if err := ctx.RegisterComponentResourceV2(ClusterType, name, pulumi.Map{
		"cluster": pulumi.String(p.Cluster), "endpoint": pulumi.String(p.Endpoint),
		"environment":  pulumi.String(p.Environment),
		"talosVersion": pulumi.String(p.Talos), "kubernetesVersion": pulumi.String(p.Kubernetes),
	}, c, opts...); err != nil {
		return nil, err
	}

	c.setAbsent()

	b, err := newBuilder(ctx, name, args, c)
	if err != nil {
		return nil, err
	}

	if err := readState(b.hooks.scope, b.report, c); err != nil {
		return nil, err
	}

	if p.Bootstrap == spec.BootstrapExternal {
		if err := b.machines(); err != nil {
			return nil, err
		}

		return c, ctx.RegisterResourceOutputs(c, withRelease(pulumi.Map{}, p))
	}

	if err := b.cluster(); err != nil {
		return nil, err
	}

	var all []pulumi.Resource
	for _, node := range c.Nodes {
		all = append(all, node.VM, node.Applied)
	}

	final := rollout.FinalCheck{Scope: b.hooks.scope, System: b.hooks.system}

	outputs := outputsOf(c)
	outputs["kubeconfig"] = finally(ctx, all, c.Kubeconfig, final)

	return c, ctx.RegisterResourceOutputs(c, withRelease(outputs, p))
}

// setAbsent gives the outputs values of a cluster that the program does not bootstrap. The SDK leaves those that a
// component does not set unresolved.
func (c *TalosCluster) setAbsent() {
	none, unknown := pulumi.String("").ToStringOutput(), pulumi.ToOutput((*string)(nil)).(pulumi.StringPtrOutput)
	c.Endpoint, c.Kubeconfig, c.Talosconfig, c.KubeconfigExpiry, c.TalosconfigExpiry = none, none, none, unknown, unknown
	c.MachineSecrets = pulumi.ToOutput(machine.MachineSecrets{}).(machine.MachineSecretsOutput)
	c.ControlPlaneConfiguration, c.WorkerConfiguration = none, none
}

// builder carries what the resources of a cluster share while they are registered.
type builder struct {
	*TalosCluster

	ctx       *pulumi.Context
	name      string
	report    *preflight.Report
	proxmox   Proxmox
	hooks     talosHooks
	addresses *proxmoxvm.AddressBook
	images    *proxmoxvm.Images
	key       pulumi.StringInput // of the tailnet
	bundle    pulumi.StringInput // that is taken over; nil: none
	manifests pulumi.StringInput // with secrets; nil: none
	logins    pulumi.StringInput // of registries; nil: none
	contract  pulumi.StringOutput
	child     pulumi.ResourceOption

	// known is what holds the identity of the cluster, where a resource does.
	known []pulumi.Resource
	// creationOrder is what the VMs of workers wait for.
	creationOrder *creationOrder
	// configured are the control planes, once they are registered.
	configured []pulumi.Resource
	// replacementOrder is the order of workers where some are replaced; nil: none is.
	replacementOrder *replacementOrder
}

func newBuilder(ctx *pulumi.Context, name string, args *TalosClusterArgs, c *TalosCluster) (*builder, error) {
	b := &builder{
		TalosCluster: c, ctx: ctx, name: name, report: args.Preflight, proxmox: args.Proxmox, key: args.TailscaleAuthKey,
		bundle: args.MachineSecrets, manifests: args.SecretManifests, logins: args.RegistryLogins,
		addresses: &proxmoxvm.AddressBook{}, child: pulumi.Parent(c), replacementOrder: newReplacementOrder(args.Plan),
	}

	for _, n := range args.Plan.Nodes() {
		if n.Address.IsValid() {
			b.addresses.Set(n.Name, n.Address.String())
		}
	}

	var err error
	if b.hooks, err = registerTalosHooks(ctx, name, hookArgs{
		plan: args.Plan, report: args.Preflight, proxmox: args.Proxmox, addresses: b.addresses, destroying: args.Destroying,
	}, args.ProjectDir, args.BackupPassphrase); err != nil {
		return nil, err
	}

	b.images = proxmoxvm.NewImages(name, args.Preflight.SharedImages(), b.child)

	return b, nil
}

// machines makes the nodes, and leaves them waiting to be configured.
func (b *builder) machines() error {
	for _, pool := range b.Plan.Pools {
		if err := b.workers(pool, nil); err != nil {
			return err
		}
	}

	return nil
}

// cluster makes the nodes, configures them, starts the cluster and fetches the credentials.
func (b *builder) cluster() error {
	p := b.Plan

	secrets, err := newMachineSecrets(b.ctx, b.name, p, b.bundle, b.child)
	if err != nil {
		return err
	}

	b.MachineSecrets, b.contract, b.known = secrets.machine, secrets.contract, secrets.resources
	credentials := secrets.administrator

	pulumi.All(credentials.CaCertificate(), credentials.ClientCertificate(),
		credentials.ClientKey()).ApplyT(func(all []any) error {
		b.hooks.credentials.Set(talosapi.Credentials{CA: all[0].(string), Certificate: all[1].(string), Key: all[2].(string)})

		return nil
	})

	credentials = b.checked(credentials)
	b.contract = b.contract.ApplyT(func(made string) string {
		return p.WithContract(made).ContractVersion()
	}).(pulumi.StringOutput)

	controls, others := byRole(p)

	// The address of the first may be what all are configured with.
	if err := b.controlPlanes(controls); err != nil {
		return err
	}

	b.Endpoint = endpointOf(p, b.Nodes[0].IPAddress)

	configure := func(pool plan.PlannedPool, after []pulumi.Resource) func(plan.Node) *clusterConfiguration {
		configuration := b.poolConfiguration(pool)

		switch {
		case pool.Name == controls[0].Name:
			b.ControlPlaneConfiguration = configuration
		case len(others) > 0 && pool.Name == cmp.Or(p.Outputs.WorkerConfiguration, others[0].Name):
			b.WorkerConfiguration = configuration
		}

		hooks := []*pulumi.ResourceHook{b.hooks.waitAnswering, b.hooks.configureExisting}
		if pool.Image.Detach {
			hooks = append(hooks, b.hooks.ejectISO)
		}

		hooks = append(hooks, b.hooks.configure)

		return func(n plan.Node) *clusterConfiguration {
			return &clusterConfiguration{
				NodeConfiguration: NodeConfiguration{
					Client: credentials, Machine: configuration, Patches: b.nodePatches(n), Staged: p.Apply == spec.ApplyStaged,
				},
				after: after, created: hooks, changed: []*pulumi.ResourceHook{b.hooks.change},
				removed: b.hooks.held(b.hooks.remove),
			}
		}
	}

	made := b.Nodes

	for _, pool := range controls {
		of := configure(pool, nil)

		for range pool.Nodes {
			node := made[0]
			made = made[1:]

			if err := errors.Join(node.configure(b.ctx, of(node.node)), node.finish(b.ctx)); err != nil {
				return err
			}

			b.hooks.learnVersion(node)
			b.configured = append(b.configured, node.Applied)
		}
	}

	if b.creationOrder, err = newCreationOrder(b.ctx, b.name, p, b.report, slices.Concat(b.known, b.configured),
		b.child); err != nil {
		return err
	}

	workers := func(after ...pulumi.Resource) error {
		for _, pool := range replacedFirst(p, others) {
			if err := b.workers(pool, configure(pool, after)); err != nil {
				return err
			}
		}

		return nil
	}

	// A worker is configured when it shows a certificate, which control planes issue. Without the discovery service it
	// learns from Kubernetes alone where they are, so Kubernetes comes first.
	if p.Discovery == spec.DiscoveryService {
		if err = workers(b.configured...); err == nil {
			_, err = b.start(credentials, b.configured)
		}
	} else {
		var kubeconfig pulumi.Resource
		if kubeconfig, err = b.start(credentials, b.configured); err == nil {
			err = workers(append(slices.Clone(b.configured), kubeconfig)...)
		}
	}

	inPlanOrder(p, b.Nodes, func(n *TalosNode) string { return n.node.Name })

	b.Talosconfig = b.talosconfig(credentials)
	b.TalosconfigExpiry = expiry(credentials.ClientCertificate().ToStringPtrOutput())

	return err
}

// controlPlanes makes the VMs of control planes. They are configured when all of them are registered.
func (b *builder) controlPlanes(pools []plan.PlannedPool) error {
	for _, pool := range pools {
		for _, n := range pool.Nodes {
			args, err := b.node(pool, n)
			if err != nil {
				return err
			}

			if err := b.passThrough(args); err != nil {
				return err
			}

			node, err := newNode(b.ctx, childName(b.name, n), args, b.child)
			if err != nil {
				return err
			}

			b.Nodes = append(b.Nodes, node)
		}
	}

	return nil
}

// workers makes the nodes of a pool and, where it is told how, configures them.
func (b *builder) workers(pool plan.PlannedPool, configure func(plan.Node) *clusterConfiguration) error {
	all := make([]*clusterNode, len(pool.Nodes))

	for i, n := range pool.Nodes {
		var err error
		if all[i], err = b.node(pool, n); err != nil {
			return err
		}

		if configure != nil {
			all[i].configuration = configure(n)
		}

		if b.report.Exists(n) {
			all[i].replacementOrder = b.replacementOrder
		}
	}

	if pool.Group() == plan.GroupGPUWorkers {
		nodes, err := b.gpuPool(pool, all)
		if err != nil {
			return err
		}

		b.Nodes = append(b.Nodes, nodes...)

		return nil
	}

	for _, args := range all {
		if err := b.passThrough(args); err != nil {
			return err
		}

		node, err := newTalosNode(b.ctx, childName(b.name, args.Node), args, b.child)
		if err != nil {
			return err
		}

		b.Nodes = append(b.Nodes, node)
	}

	return nil
}

// gpuNode is a node with what is known of its GPU.
func (b *builder) gpuNode(a *clusterNode) gpuNode {
	return gpuNode{childName(b.name, a.Node), a, b.report.Device(a.Node), b.report.Exists(a.Node)}
}

// passThrough has a node that is in no GPU pool get its GPU, if it has one.
func (b *builder) passThrough(a *clusterNode) error {
	if a.Node.GPU == nil {
		return nil
	}

	return b.gpuNode(a).passThrough(b.ctx, b.child)
}

// gpuPool creates the nodes of a GPU pool.
func (b *builder) gpuPool(pool plan.PlannedPool, all []*clusterNode) ([]*TalosNode, error) {
	var nodes []gpuNode
	for _, a := range all {
		nodes = append(nodes, b.gpuNode(a))
	}

	made, err := newGPUWorkerPool(b.ctx, b.name+"-"+pool.Name, pool.Name, nodes, b.child)
	if err != nil {
		return nil, err
	}

	return made.Nodes, nil
}

// before is what must be done before a VM that is there may change: who empties its node needs the credentials of the
// cluster, and control planes go before workers.
func (b *builder) before(n plan.Node) []pulumi.Resource {
	switch {
	case n.Role == spec.RoleWorker:
		return b.creationOrder.dependencies(b.report.Exists(n))
	case b.report.Exists(n):
		return b.known
	default:
		return nil
	}
}

// node is what a node of the plan is made of.
func (b *builder) node(pool plan.PlannedPool, n plan.Node) (*clusterNode, error) {
	p := b.Plan

	state, err := vmState(b.hooks.scope, b.report, b.name, n)
	if err != nil {
		return nil, err
	}

	args := &clusterNode{
		TalosNodeArgs: TalosNodeArgs{
			Node: n, Origin: origin(p, pool.Image), Rebalance: p.Rebalance, Replace: slices.Contains(p.Replace, n.Name),
			AgentTimeout: p.AgentTimeout.String(), Firewall: pool.FirewallRules(), Proxmox: b.proxmox,
		},
		hooks: b.hooks.of(b.hooks.checkVMIDFree), companions: b.hooks.ofCompanions(b.report), after: b.before(n),
		incomplete: b.report.Incomplete(n), absent: b.report.AbsentVMIDs()[n.VMID], state: state,
		identities: b.hooks.scope.Identities, identified: b.hooks.uuids[n.Name].Set,
	}

	if n.CloudInit != "" {
		args.CloudInit = &proxmoxvm.CloudInit{
			Address: netip.PrefixFrom(n.Address, p.Network.Bits()), Gateway: p.Gateway,
			Nameservers: p.Nameservers,
		}
	}

	if args.Discovery = proxmoxvm.DiscoveryOf(p, b.proxmox); args.Discovery != nil {
		args.Discovery.Optional = p.Bootstrap == spec.BootstrapExternal
		args.Discovery.OnFound = func(address string) { b.addresses.Set(n.Name, address) }
	}

	if n.Template != "" {
		args.Template = templateInput(b.report, n)

		return args, nil
	}

	args.hooks = b.hooks.of(b.hooks.checkVMIDFree, b.hooks.checkImage)

	return args, b.boot(args, pool.Image)
}

// boot says what a node boots that is no clone.
func (b *builder) boot(args *clusterNode, image plan.BootImage) error {
	fetch, err := proxmoxvm.DownloadOf(b.Plan, image, args.Node, b.hooks.ofImages())

	switch {
	case err != nil:
		return err
	case fetch == nil:
		args.Image = pulumi.String(image.Volume)
	case image.Scope == plan.PerNode:
		args.fetch = fetch
	default:
		args.Image, err = b.images.Volume(b.ctx, fetch, args.Node.Host, image.Scope == plan.PerCluster)
	}

	return err
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

// poolConfiguration is the machine configuration that the nodes of a pool share, secret.
func (b *builder) poolConfiguration(pool plan.PlannedPool) pulumi.StringOutput {
	p := b.Plan

	var secret pulumi.StringArray

	if pool.Tailnet {
		secret = append(secret, pulumi.ToSecret(b.key).(pulumi.StringOutput).ApplyT(func(key string) (string, error) {
			return machineconfig.Tailscale(p, pool, key)
		}).(pulumi.StringOutput))
	}

	if pool.Role == spec.RoleControlPlane {
		secret = append(secret, etcdEncryption(b.MachineSecrets))
	}

	if b.manifests != nil && pool.Role == spec.RoleControlPlane {
		secret = append(secret, pulumi.ToSecret(b.manifests).(pulumi.StringOutput).ApplyT(func(text string) (string, error) {
			return machineconfig.SecretManifests(pool, text)
		}).(pulumi.StringOutput))
	}

	logins := pulumi.StringArray{}.ToStringArrayOutput()
	if b.logins != nil {
		logins = pulumi.All(b.contract, pulumi.ToSecret(b.logins)).ApplyT(func(all []any) ([]string, error) {
			return machineconfig.RegistryLogins(p.WithContract(all[0].(string)), all[1].(string))
		}).(pulumi.StringArrayOutput)
	}

	own := b.rendered(func(p *plan.Plan) ([]string, error) { return machineconfig.Patches(p, pool) })

	patches := pulumi.All(secret, own, logins).ApplyT(func(all []any) []string {
		return slices.Concat(all[0].([]string), all[2].([]string), all[1].([]string))
	}).(pulumi.StringArrayOutput)

	found := machine.GetConfigurationOutput(b.ctx, machine.GetConfigurationOutputArgs{
		ClusterName:       pulumi.String(p.Cluster),
		ClusterEndpoint:   b.Endpoint,
		MachineType:       pulumi.String(pool.Role),
		MachineSecrets:    b.MachineSecrets,
		TalosVersion:      b.contract,
		KubernetesVersion: pulumi.String(strings.TrimPrefix(p.Kubernetes, "v")),
		ConfigPatches:     patches,
		Docs:              pulumi.Bool(false),
		Examples:          pulumi.Bool(false),
	}, b.invoke())

	return pulumi.ToSecret(found.MachineConfiguration()).(pulumi.StringOutput)
}

// nodePatches are what is particular to a node.
func (b *builder) nodePatches(n plan.Node) pulumi.StringArrayOutput {
	return b.rendered(func(p *plan.Plan) ([]string, error) { return machineconfig.NodePatches(p, n) })
}

// rendered are patches, written with the defaults of the version that the cluster was made with.
func (b *builder) rendered(render func(*plan.Plan) ([]string, error)) pulumi.StringArrayOutput {
	return b.contract.ApplyT(func(contract string) ([]string, error) {
		return render(b.Plan.WithContract(contract))
	}).(pulumi.StringArrayOutput)
}

// invoke makes functions use the cluster's providers.
func (b *builder) invoke() pulumi.InvokeOption { return pulumi.Parent(b.TalosCluster) }

// talosconfig has the control planes as endpoints, never the cluster's: the Talos API must be there when Kubernetes is
// not.
func (b *builder) talosconfig(c machine.ClientConfigurationOutput) pulumi.StringOutput {
	var endpoints, nodes pulumi.StringArray

	for _, node := range b.Nodes {
		address := node.IPAddress.Elem()
		nodes = append(nodes, address)

		if node.node.Role == spec.RoleControlPlane {
			endpoints = append(endpoints, address)
		}
	}

	found := client.GetConfigurationOutput(b.ctx, client.GetConfigurationOutputArgs{
		ClusterName: pulumi.String(b.Plan.Cluster),
		ClientConfiguration: client.GetConfigurationClientConfigurationArgs{
			CaCertificate: c.CaCertificate(), ClientCertificate: c.ClientCertificate(), ClientKey: c.ClientKey(),
		},
		Endpoints: endpoints,
		Nodes:     nodes,
	}, b.invoke())

	return pulumi.ToSecret(found.TalosConfig()).(pulumi.StringOutput)
}

// start fetches the kubeconfig, once the cluster has been bootstrapped and its control plane is up. It waits for
// control planes only, unless it is told otherwise: a worker that does not come up must not keep the cluster from
// starting.
func (b *builder) start(credentials machine.ClientConfigurationOutput,
	controlPlanes []pulumi.Resource,
) (pulumi.Resource, error) {
	first := b.Nodes[0].IPAddress.Elem()
	after := controlPlanes

	if b.Plan.BootstrapWaitsForWorkers {
		after = nil
		for _, node := range b.Nodes { // those that are registered: workers that need Kubernetes first are not
			after = append(after, node.Applied)
		}
	}

	// Where nothing is set, the provider's default is no input.
	var renewal pulumi.StringPtrInput
	if b.Plan.KubeconfigRenewal > 0 {
		renewal = pulumi.String(b.Plan.KubeconfigRenewal.String())
	}

	kubeconfig, err := cluster.NewKubeconfig(b.ctx, b.name+"-kubeconfig", &cluster.KubeconfigArgs{
		ClientConfiguration: cluster.KubeconfigClientConfigurationArgs{
			CaCertificate:     credentials.CaCertificate(),
			ClientCertificate: credentials.ClientCertificate(),
			ClientKey:         credentials.ClientKey(),
		},
		Node: first, Endpoint: first, CertificateRenewalDuration: renewal,
	}, b.child,
		pulumi.DependsOn(after),
		// It is never replaced: that it is in the state says that the cluster has been bootstrapped.
		pulumi.AdditionalSecretOutputs([]string{"kubeconfigRaw", "kubernetesClientConfiguration", "clientConfiguration"}),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{
			BeforeCreate: []*pulumi.ResourceHook{b.hooks.bootstrap, b.hooks.waitReady},
		}))
	if err != nil {
		return nil, err
	}

	established := append([]pulumi.Resource{kubeconfig}, controlPlanes...)

	accepted, err := b.emptied(established)
	if err != nil {
		return nil, err
	}

	if accepted != nil {
		established = append(established, accepted)
	}

	b.Kubeconfig = outputAfter(b.ctx, established, kubeconfig.KubeconfigRaw, b.hooks.operations.Bootstrap.CheckEstablished)
	b.KubeconfigExpiry = expiry(kubeconfig.KubernetesClientConfiguration.ClientCertificate().ToStringPtrOutput())

	return kubeconfig, nil
}

// checked are the credentials of the cluster, known when its etcd was found to be one: no node is configured before.
func (b *builder) checked(c machine.ClientConfigurationOutput) machine.ClientConfigurationOutput {
	return c.ApplyT(func(client machine.ClientConfiguration) (machine.ClientConfiguration, error) {
		ctx := hookutil.Interruptible(b.ctx.Context())

		return client, b.hooks.operations.Bootstrap.CheckOneEtcd(ctx, talosapi.Credentials{
			CA: client.CaCertificate, Certificate: client.ClientCertificate, Key: client.ClientKey,
		})
	}).(machine.ClientConfigurationOutput)
}

// emptied is the record that an empty etcd was accepted and begun: the key counts once. The record is there as long as
// the key is set.
func (b *builder) emptied(after []pulumi.Resource) (pulumi.Resource, error) {
	if !b.Plan.AcceptEmpty {
		return nil, nil //nolint:nilnil // an empty cluster is not accepted
	}

	return pulumi.NewStash(b.ctx, b.name+emptied, &pulumi.StashArgs{Input: pulumi.String("an empty cluster was accepted")},
		b.child, pulumi.DependsOn(after),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{b.hooks.beginEmpty}}))
}
