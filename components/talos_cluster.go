package components

import (
	"cmp"
	"errors"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/client"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmimage"
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

	if err := readState(b.hooks.scope, b.report, name, c); err != nil {
		return nil, err
	}

	if p.Bootstrap == spec.BootstrapExternal {
		if err := b.machines(); err != nil {
			return nil, err
		}

		return c, ctx.RegisterResourceOutputs(c, withRelease(pulumi.Map{}, p))
	}

	if err := b.cluster(args.MachineSecrets); err != nil {
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
	talosMachines

	configuration talosConfiguration
	// credentials of an administrator.
	credentials machine.ClientConfigurationOutput
	// configured are the control planes, once they are registered.
	configured []pulumi.Resource
	// replacementOrder is the order of workers where some are replaced; nil: none is.
	replacementOrder *replacementOrder
}

func newBuilder(ctx *pulumi.Context, name string, args *TalosClusterArgs, c *TalosCluster) (*builder, error) {
	b := &builder{
		TalosCluster: c,
		talosMachines: talosMachines{
			ctx: ctx, name: name, plan: args.Plan, report: args.Preflight, proxmox: args.Proxmox,
			addresses: &proxmoxvm.AddressBook{}, child: pulumi.Parent(c),
		},
		configuration: talosConfiguration{
			ctx: ctx, plan: args.Plan, tailscaleKey: args.TailscaleAuthKey, manifests: args.SecretManifests,
			logins: args.RegistryLogins, invoke: pulumi.Parent(c),
		},
		replacementOrder: newReplacementOrder(args.Plan),
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

	b.images = vmimage.NewImages(name, args.Preflight.SharedImages(), b.child)

	return b, nil
}

// machines makes the nodes, and leaves them waiting to be configured.
func (b *builder) machines() error {
	for _, pool := range b.plan.Pools {
		if err := b.workers(pool, nil); err != nil {
			return err
		}
	}

	return nil
}

// cluster makes the nodes, configures them, starts the cluster and fetches the credentials.
func (b *builder) cluster(bundle pulumi.StringInput) error {
	controls, workers := byRole(b.plan)

	if err := b.identity(bundle); err != nil {
		return err
	}

	// The address of the first may be what all are configured with.
	if err := b.controlPlanes(controls); err != nil {
		return err
	}

	b.Endpoint = endpointOf(b.plan, b.Nodes[0].IPAddress)
	b.configuration.endpoint = b.Endpoint

	if err := b.configureControlPlanes(controls); err != nil {
		return err
	}

	if err := b.startWith(workers); err != nil {
		return err
	}

	inPlanOrder(b.plan, b.Nodes, func(n *TalosNode) string { return n.node.Name })

	b.Talosconfig = b.talosconfig()
	b.TalosconfigExpiry = expiry(b.credentials.ClientCertificate().ToStringPtrOutput())

	return nil
}

// identity makes the secrets of the cluster, or reads them from the bundle of one that is imported, and an
// administrator's credentials, which the hooks get, too.
func (b *builder) identity(bundle pulumi.StringInput) error {
	secrets, err := newMachineSecrets(b.ctx, b.name, b.plan, bundle, b.child)
	if err != nil {
		return err
	}

	credentials := secrets.administrator

	pulumi.All(credentials.CaCertificate(), credentials.ClientCertificate(),
		credentials.ClientKey()).ApplyT(func(all []any) error {
		b.hooks.credentials.Set(talosapi.Credentials{CA: all[0].(string), Certificate: all[1].(string), Key: all[2].(string)})

		return nil
	})

	secrets.contract = secrets.contract.ApplyT(func(made string) string {
		return b.plan.WithContract(made).ContractVersion()
	}).(pulumi.StringOutput)

	b.credentials = b.checked(credentials)
	b.MachineSecrets, b.secrets, b.configuration.secrets = secrets.machine, secrets.resources, secrets

	return nil
}

// configureControlPlanes configures the control planes, whose VMs are registered.
func (b *builder) configureControlPlanes(pools []plan.PlannedPool) error {
	made := b.Nodes

	for _, pool := range pools {
		shared := b.configuration.ofPool(pool)
		if pool.Name == pools[0].Name {
			b.ControlPlaneConfiguration = shared
		}

		configure := b.configure(pool, shared, nil)

		for range pool.Nodes {
			node := made[0]
			made = made[1:]

			if err := errors.Join(node.configure(b.ctx, configure(node.node)), node.finish(b.ctx)); err != nil {
				return err
			}

			b.hooks.learnVersion(node)
			b.configured = append(b.configured, node.Applied)
		}
	}

	var err error
	b.creationOrder, err = newCreationOrder(b.ctx, b.name, b.plan, b.report, slices.Concat(b.secrets, b.configured),
		b.child)

	return err
}

// startWith starts the cluster, whose control planes are configured, and makes the workers.
//
// A worker is configured when it shows a certificate, which control planes issue. Without the discovery service it
// learns from Kubernetes alone where they are, so Kubernetes comes first.
func (b *builder) startWith(pools []plan.PlannedPool) error {
	if b.plan.Discovery == spec.DiscoveryService {
		if err := b.configuredWorkers(pools, b.configured); err != nil {
			return err
		}

		_, err := b.start()

		return err
	}

	kubeconfig, err := b.start()
	if err != nil {
		return err
	}

	return b.configuredWorkers(pools, append(slices.Clone(b.configured), kubeconfig))
}

// configuredWorkers makes workers, and configures them after others.
func (b *builder) configuredWorkers(pools []plan.PlannedPool, after []pulumi.Resource) error {
	for _, pool := range replacedFirst(b.plan, pools) {
		shared := b.configuration.ofPool(pool)
		if pool.Name == cmp.Or(b.plan.Outputs.WorkerConfiguration, pools[0].Name) {
			b.WorkerConfiguration = shared
		}

		if err := b.workers(pool, b.configure(pool, shared, after)); err != nil {
			return err
		}
	}

	return nil
}

// configure says how a node of a pool, whose nodes share a configuration, is configured after others.
func (b *builder) configure(pool plan.PlannedPool, shared pulumi.StringOutput, after []pulumi.Resource) func(
	plan.Node,
) *clusterConfiguration {
	created := []*pulumi.ResourceHook{b.hooks.waitAnswering, b.hooks.configureExisting}
	if pool.Image.Detach {
		created = append(created, b.hooks.ejectISO)
	}

	created = append(created, b.hooks.configure)

	return func(n plan.Node) *clusterConfiguration {
		return &clusterConfiguration{
			NodeConfiguration: NodeConfiguration{
				Client: b.credentials, Machine: shared, Patches: b.configuration.ofNode(n),
				Staged: b.plan.Apply == spec.ApplyStaged,
			},
			after: after, created: created, changed: []*pulumi.ResourceHook{b.hooks.change},
			removed: b.hooks.held(b.hooks.remove),
		}
	}
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

			node, err := newNode(b.ctx, plan.ResourceName(b.name, n), args, b.child)
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

		node, err := newTalosNode(b.ctx, plan.ResourceName(b.name, args.Node), args, b.child)
		if err != nil {
			return err
		}

		b.Nodes = append(b.Nodes, node)
	}

	return nil
}

// talosconfig has the control planes as endpoints, never the cluster's: the Talos API must be there when Kubernetes is
// not.
func (b *builder) talosconfig() pulumi.StringOutput {
	var endpoints, nodes pulumi.StringArray

	for _, node := range b.Nodes {
		address := node.IPAddress.Elem()
		nodes = append(nodes, address)

		if node.node.Role == spec.RoleControlPlane {
			endpoints = append(endpoints, address)
		}
	}

	found := client.GetConfigurationOutput(b.ctx, client.GetConfigurationOutputArgs{
		ClusterName: pulumi.String(b.plan.Cluster),
		ClientConfiguration: client.GetConfigurationClientConfigurationArgs{
			CaCertificate: b.credentials.CaCertificate(), ClientCertificate: b.credentials.ClientCertificate(),
			ClientKey: b.credentials.ClientKey(),
		},
		Endpoints: endpoints,
		Nodes:     nodes,
	}, b.configuration.invoke)

	return pulumi.ToSecret(found.TalosConfig()).(pulumi.StringOutput)
}

// start fetches the kubeconfig, once the cluster has been bootstrapped and its control plane is up. It waits for
// control planes only, unless it is told otherwise: a worker that does not come up must not keep the cluster from
// starting.
func (b *builder) start() (pulumi.Resource, error) {
	first := b.Nodes[0].IPAddress.Elem()
	after := b.configured

	if b.plan.BootstrapWaitsForWorkers {
		after = nil
		for _, node := range b.Nodes { // those that are registered: workers that need Kubernetes first are not
			after = append(after, node.Applied)
		}
	}

	kubeconfig, err := newTalosKubeconfig(b.ctx, b.name, b.plan, b.credentials, first, b.child,
		pulumi.DependsOn(after),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{
			BeforeCreate: []*pulumi.ResourceHook{b.hooks.bootstrap, b.hooks.waitReady},
		}))
	if err != nil {
		return nil, err
	}

	established := append([]pulumi.Resource{kubeconfig}, b.configured...)

	accepted, err := b.emptied(established)
	if err != nil {
		return nil, err
	}

	if accepted != nil {
		established = append(established, accepted)
	}

	b.Kubeconfig = outputAfter(b.ctx, established, kubeconfigAt(kubeconfig.KubeconfigRaw, b.Endpoint),
		b.hooks.operations.Bootstrap.CheckEstablished)
	b.KubeconfigExpiry = expiry(kubeconfig.KubernetesClientConfiguration.ClientCertificate().ToStringPtrOutput())

	return kubeconfig, nil
}

// checked are the credentials of the cluster, known when its etcd was found to be one: no node is configured before.
// That is looked at in each update, like the final check, whether or not a resource has a step.
func (b *builder) checked(c machine.ClientConfigurationOutput) machine.ClientConfigurationOutput {
	return c.ApplyT(func(client machine.ClientConfiguration) (machine.ClientConfiguration, error) {
		ctx := hookutil.Interruptible(b.ctx.Context())

		return client, b.hooks.operations.Bootstrap.CheckOneEtcd(ctx, talosapi.Credentials{
			CA: client.CaCertificate, Certificate: client.ClientCertificate, Key: client.ClientKey,
		})
	}).(machine.ClientConfigurationOutput)
}

// emptied is the record that an empty etcd was accepted and begun.
func (b *builder) emptied(after []pulumi.Resource) (pulumi.Resource, error) {
	if !b.plan.AcceptEmpty {
		return nil, nil //nolint:nilnil // an empty cluster is not accepted
	}

	return newEmptyRecord(b.ctx, b.name, b.child, pulumi.DependsOn(after),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{b.hooks.beginEmpty}}))
}
