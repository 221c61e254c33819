package components

import (
	"errors"
	"net/netip"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmimage"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// K3sClusterArgs describe one cluster of K3s.
type K3sClusterArgs struct {
	// Plan is every decision; see planner.Plan. Its kind is k3s.
	Plan *plan.Plan
	// Preflight is the report of preflight.Run for the plan. An update requires it; nil, in a preview, means that
	// Proxmox VE did not answer.
	Preflight *preflight.Report
	// Proxmox is asked by what runs between steps.
	Proxmox K3sProxmox
	// Destroying says that the run destroys the cluster: each VM is looked at before it is deleted, after a teardown as
	// well, and a run that would leave protected VMs is refused.
	Destroying bool
	// Token is what servers join with. It is required where the plan says that it is given, and kept secret; otherwise one
	// is made and kept in state.
	Token pulumi.StringInput
	// Identity are the files of a server that hold the identity of an existing cluster (k3sconfig.ReadServerFiles). They
	// are required where the plan says that they are given, and kept secret.
	Identity pulumi.StringInput
	// SecretManifests are Kubernetes manifests to apply, and RegistryLogins logins of registries
	// (spec.ReadRegistryLogins). They are required where the plan says that there are some, and kept secret.
	SecretManifests, RegistryLogins pulumi.StringInput
}

// K3sCluster is a Kubernetes cluster of K3s on Ubuntu machines: servers with an embedded etcd, and agents.
type K3sCluster struct {
	pulumi.ResourceState

	// Endpoint of the Kubernetes API.
	Endpoint pulumi.StringOutput `pulumi:"endpoint"`
	// Kubeconfig of an administrator, secret. It is there when the servers have joined.
	Kubeconfig pulumi.StringOutput `pulumi:"kubeconfig"`
	// KubeconfigExpiry says until when it is good, as RFC 3339 writes it. It is renewed twice a year, by any update.
	KubeconfigExpiry pulumi.StringOutput `pulumi:"kubeconfigExpiry"`
	// Health of each node by name, as Kubernetes sees it when the update ends.
	Health pulumi.StringMapOutput `pulumi:"health"`
	// SSHPrivateKey logs in to the nodes, secret; empty where none is made.
	SSHPrivateKey pulumi.StringOutput `pulumi:"sshPrivateKey"`

	// Nodes in plan order, next to the plan's nodes.
	Nodes []*K3sNode
	// Plan that was carried out.
	Plan *plan.Plan
}

// NewK3sCluster makes a cluster: an identity, machines that set themselves up with it, and the credentials to use it.
// It needs a proxmoxve provider, whose login to the hosts writes the user data of the machines. It comes with the
// options or from the parent.
func NewK3sCluster(ctx *pulumi.Context, name string, args *K3sClusterArgs, opts ...pulumi.ResourceOption) (*K3sCluster,
	error,
) {
	switch {
	case args == nil || args.Plan == nil || args.Proxmox == nil:
		return nil, errors.New("K3sCluster " + name + ": a plan and access to Proxmox VE are required")
	case args.Preflight == nil && !ctx.DryRun():
		return nil, errors.New("K3sCluster " + name + noReport)
	case args.Plan.K3s == nil:
		return nil, errors.New("K3sCluster " + name + ": the plan is not for K3s")
	case args.Plan.K3s.TokenProvided != (args.Token != nil):
		return nil, errors.New("K3sCluster " + name + ": Token is required if, and only if, the plan has one given")
	case args.Plan.K3s.IdentityProvided != (args.Identity != nil):
		return nil, errors.New("K3sCluster " + name + ": Identity is required if, and only if, the plan has one given")
	case args.Plan.SecretManifests != (args.SecretManifests != nil),
		args.Plan.RegistryLogins != (args.RegistryLogins != nil):
		return nil, errors.New("K3sCluster " + name +
			": SecretManifests and RegistryLogins are required if, and only if, the plan has them")
	}

	p := args.Plan
	c := &K3sCluster{Plan: p}

	if err := ctx.RegisterComponentResourceV2(K3sClusterType, name, pulumi.Map{
		"cluster": pulumi.String(p.Cluster), "endpoint": pulumi.String(p.Endpoint),
		"environment": pulumi.String(p.Environment),
		"k3sVersion":  pulumi.String(p.K3s.Version),
	}, c, opts...); err != nil {
		return nil, err
	}

	b := &k3sBuilder{
		K3sCluster: c, ctx: ctx, name: name, report: args.Preflight, proxmox: args.Proxmox,
		child: pulumi.Parent(c), servers: &proxmoxvm.AddressBook{},
		registryLogins: orNone(args.RegistryLogins),
	}
	for _, n := range p.Nodes() {
		if n.Address.IsValid() {
			b.servers.Set(n.Name, n.Address.String())
		}
	}

	b.images = vmimage.NewImages(name, args.Preflight.SharedImages(), b.child)

	var err error
	if b.identity, err = newK3sIdentity(ctx, name, p, args.Token, args.Identity, b.child); err != nil {
		return nil, err
	}

	if b.hooks, err = registerK3sHooks(ctx, name, hookArgs{
		plan: p, report: args.Preflight, proxmox: args.Proxmox, addresses: b.servers, destroying: args.Destroying,
	}, args.Proxmox, b.identity); err != nil {
		return nil, err
	}

	if err := readState(b.hooks.scope, b.report, name, c); err != nil {
		return nil, err
	}

	if err := checkSharedSettings(ctx, b.hooks, b.report, name); err != nil {
		return nil, err
	}

	if err := b.machines(); err != nil {
		return nil, err
	}

	var all []pulumi.Resource
	for _, node := range c.Nodes {
		all = append(all, node.VM, node.Joined)
	}

	applied, err := newK3sManifests(ctx, name, p, args.SecretManifests, c.Nodes, b.hooks, b.child)
	if err != nil {
		return nil, err
	}

	all = append(all, applied...)

	final := rollout.FinalCheck{Scope: b.hooks.scope, System: b.hooks.operations.Cluster}

	kubeconfig := finally(ctx, all, c.Kubeconfig, final)
	c.Health = b.health(kubeconfig)

	outputs := outputsOf(c)
	outputs["kubeconfig"] = kubeconfig

	return c, ctx.RegisterResourceOutputs(c, withRelease(outputs, p))
}

// k3sBuilder carries what the resources of a cluster share while they are registered.
type k3sBuilder struct {
	*K3sCluster

	ctx     *pulumi.Context
	name    string
	report  *preflight.Report
	proxmox K3sProxmox
	hooks   k3sHooks
	images  *vmimage.Images
	servers *proxmoxvm.AddressBook
	child   pulumi.ResourceOption

	identity *k3sIdentity
	// registryLogins are empty without.
	registryLogins pulumi.StringInput
	// joined are the servers, once they are registered.
	joined []pulumi.Resource
	// creationOrder is what the VMs of agents wait for.
	creationOrder *creationOrder
}

// machines makes the nodes, the servers first, and what is known when they have joined.
func (b *k3sBuilder) machines() error {
	servers, agents := byRole(b.Plan)

	if err := b.pools(servers, newServerReplacementOrder(b.Plan)); err != nil {
		return err
	}

	if err := b.recordEmpty(); err != nil {
		return err
	}

	var err error
	if b.creationOrder, err = newCreationOrder(b.ctx, b.name, b.Plan, b.report,
		append(b.identity.resources(), b.joined...), b.child); err != nil {
		return err
	}

	if err := b.pools(replacedFirst(b.Plan, agents), newReplacementOrder(b.Plan)); err != nil {
		return err
	}

	inPlanOrder(b.Plan, b.Nodes, func(n *K3sNode) string { return n.node.Name })

	b.release()

	return nil
}

// pools creates the nodes of pools, and has them join. Where some are replaced, existing ones wait for them.
func (b *k3sBuilder) pools(pools []plan.PlannedPool, order *replacementOrder) error {
	for _, pool := range pools {
		for _, n := range pool.Nodes {
			var in *replacementOrder
			if b.report.Exists(n) {
				in = order
			}

			if err := b.machine(pool, n, in.next()); err != nil {
				return err
			}

			last := b.Nodes[len(b.Nodes)-1]

			// The first server.
			if len(b.Nodes) == 1 {
				b.Endpoint = endpointOf(b.Plan, last.IPAddress)
				b.Kubeconfig = kubeconfigOutput(b.Plan.Cluster, b.identity.identity, b.identity.administrator, b.Endpoint)
				b.KubeconfigExpiry = kubeconfigExpiry(b.identity.administrator)
				b.SSHPrivateKey = b.identity.sshPrivateKey()
			}

			if err := b.join(last); err != nil {
				return err
			}

			if n.Role == spec.RoleControlPlane {
				b.joined = append(b.joined, last.Joined)
				b.hooks.learnVersion(last)
			}

			in.add(last.Joined)
		}
	}

	return nil
}

func (b *k3sBuilder) machine(pool plan.PlannedPool, n plan.Node, after []pulumi.Resource) error {
	args, err := b.node(pool, n)
	if err != nil {
		return err
	}

	args.After = append(args.After, after...)
	name := plan.ResourceName(b.name, n)

	if n.GPU != nil && !n.GPU.Raw {
		if args.Mapping, err = proxmoxvm.NewMapping(b.ctx, name, n, b.report.Device(n), b.child,
			pulumi.DependsOn(args.After), pulumi.ResourceHooks(b.hooks.ofMappings())); err != nil {
			return err
		}
	}

	node, err := newK3sNode(b.ctx, name, args, b.child)
	if err != nil {
		return err
	}

	b.Nodes = append(b.Nodes, node)

	return nil
}

// join has a machine count as a node of the cluster when it is one: servers one after the other, then the agents, for
// that is the order of upgrades.
func (b *k3sBuilder) join(node *K3sNode) error {
	before := b.joined[max(len(b.joined)-1, 0):]

	return errors.Join(node.join(b.ctx, b.known(node), b.binding(), before), node.finish(b.ctx))
}

// before is what must be done before a VM that is there may change: draining its node needs the credentials of the
// cluster, and servers go before agents.
func (b *k3sBuilder) before(n plan.Node) []pulumi.Resource {
	switch {
	case n.Role == spec.RoleWorker:
		return b.creationOrder.dependencies(b.report.Exists(n))
	case b.report.Exists(n):
		return b.identity.resources()
	default:
		return nil
	}
}

// binding are the hooks of a node's membership.
func (b *k3sBuilder) binding() *pulumi.ResourceHookBinding {
	return &pulumi.ResourceHookBinding{
		BeforeCreate: []*pulumi.ResourceHook{b.hooks.waitJoined}, BeforeUpdate: []*pulumi.ResourceHook{b.hooks.upgrade},
		BeforeDelete: b.hooks.held(b.hooks.remove),
	}
}

// node is what a node of the plan is made of.
func (b *k3sBuilder) node(pool plan.PlannedPool, n plan.Node) (*k3sNodeArgs, error) {
	p := b.Plan

	state, err := vmState(b.hooks.scope, b.report, b.name, n)
	if err != nil {
		return nil, err
	}

	args := &k3sNodeArgs{
		Node: n, Origin: k3sOrigin(pool.Image), Rebalance: p.Rebalance, Replace: p.Replaces(n.Name),
		AgentTimeout: p.AgentTimeout.String(), Firewall: pool.FirewallRules(),
		Snippets: p.K3s.Snippets, UserData: b.userData(n), Hooks: b.hooks.of(b.hooks.checkVMIDFree),
		Private:   p.SSH != nil && p.SSH.Username == "root",
		fileHooks: b.hooks.ofFiles(),
		After:     b.before(n), Incomplete: b.report.Incomplete(n), Absent: b.report.AbsentVMIDs()[n.VMID],
		State: state, identities: b.hooks.scope.Identities, companions: b.hooks.ofCompanions(),
	}

	if p.Addressing == spec.AddressingStatic {
		args.CloudInit = proxmoxvm.CloudInit{
			Address: netip.PrefixFrom(n.Address, p.Network.Bits()), Gateway: p.Gateway,
			Nameservers: p.Nameservers,
		}
	}

	args.Discovery = proxmoxvm.DiscoveryOf(p, b.proxmox)

	if n.Template != "" {
		args.Template = templateInput(b.report, n)

		return args, nil
	}

	args.Hooks = b.hooks.of(b.hooks.checkVMIDFree, b.hooks.checkImage)

	fetch, err := vmimage.DownloadOf(p, pool.Image, n, b.hooks.ofImages(pool.Image.Keep))
	if err != nil {
		return nil, err
	}

	if fetch == nil {
		args.Image = pulumi.String(pool.Image.Volume)

		return args, nil
	}

	args.Image, err = b.images.Volume(b.ctx, fetch, n.Host, true)

	return args, err
}

// orNone is a text, empty without one.
func orNone(text pulumi.StringInput) pulumi.StringInput {
	if text == nil {
		return pulumi.String("")
	}

	return text
}

// userData are what a node is told. All but the first server are told where that is.
func (b *k3sBuilder) userData(n plan.Node) pulumi.StringOutput {
	node := k3sconfig.Node{Planned: n, First: len(b.Nodes) == 0}
	first := pulumi.String("").ToStringOutput()

	switch {
	case node.First:
	case n.Role == spec.RoleWorker && b.Plan.EndpointMode == spec.EndpointDNS:
		first = b.Endpoint
	default:
		first = apiAt(b.Nodes[0].IPAddress)
	}

	return pulumi.ToSecret(pulumi.All(b.identity.identity, first, b.registryLogins).ApplyT(
		func(all []any) (string, error) {
			i, err := k3sconfig.ReadIdentity(all[0].(string))
			if err != nil {
				return "", err
			}

			node.Server = all[1].(string)

			return k3sconfig.UserData(b.Plan, node, i,
				k3sconfig.Secrets{RegistryLogins: all[2].(string)})
		})).(pulumi.StringOutput)
}

// known is what is kept of a node that has joined. What its hooks need is entered before: they run after this.
func (b *k3sBuilder) known(node *K3sNode) pulumi.Map {
	n := node.node
	address := pulumi.All(node.IPAddress, b.Kubeconfig, b.Nodes[0].IPAddress).ApplyT(func(all []any) *string {
		address, _ := all[0].(*string)
		if address != nil {
			b.servers.Set(n.Name, *address)
		}

		if first, ok := all[2].(*string); ok && first != nil {
			b.servers.Set(b.Nodes[0].node.Name, *first)
		}

		return address
	}).(pulumi.StringPtrOutput)

	return pulumi.Map{
		"name": pulumi.String(n.Name), "vmid": node.VMID, "uuid": node.VM.Smbios.Uuid(),
		"version": pulumi.String(b.Plan.K3s.Version),
		// The kubeconfig is not in it.
		"address": pulumi.Unsecret(address).(pulumi.StringPtrOutput),
	}
}

// recordEmpty records, once the servers have joined, that an empty cluster was accepted.
func (b *k3sBuilder) recordEmpty() error {
	if !b.Plan.AcceptEmpty {
		return nil
	}

	_, err := newEmptyRecord(b.ctx, b.name, b.child, pulumi.DependsOn(b.joined))

	return err
}

// release lets the credentials go when the servers have joined: who reads them finds a cluster that answers. An agent
// that does not come up holds nothing back.
func (b *k3sBuilder) release() {
	waited := []any{b.Kubeconfig}

	for _, node := range b.Nodes {
		if node.node.Role == spec.RoleControlPlane {
			waited = append(waited, node.Joined.Output)
		}
	}

	first := pulumi.All(waited...).ApplyT(func(all []any) string { return all[0].(string) })
	b.Kubeconfig = pulumi.ToSecret(first).(pulumi.StringOutput)
}

// health asks the cluster for the health of each node, once nothing else is left to be done. A preview that does not
// ask Proxmox VE does not ask the cluster either.
func (b *k3sBuilder) health(finished pulumi.StringOutput) pulumi.StringMapOutput {
	found := finished.ApplyT(func(string) (pulumi.StringMapOutput, error) {
		if b.ctx.DryRun() && b.report == nil {
			unknown := pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) map[string]string { return nil })

			return unknown.(pulumi.StringMapOutput), nil
		}

		health := b.hooks.operations.Cluster.Health(hookutil.Interruptible(b.ctx.Context()))

		return pulumi.ToStringMap(health).ToStringMapOutput(), nil
	}).(pulumi.StringMapOutput)

	return pulumi.Unsecret(found).(pulumi.StringMapOutput)
}

// k3sOrigin says what a node is made from. The version of K3s is no part of it: that changes.
func k3sOrigin(image plan.BootImage) string {
	if image.Template != "" {
		return "template " + image.Template
	}

	return "cloud image " + image.Volume + image.URL
}
