package components

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/proxmoxvm/vmimage"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/rollout/vmrestart"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
)

// TalosNodeArgs describe one machine. What it boots first is a template or an image; that is used when the VM is
// created and ignored afterwards.
type TalosNodeArgs struct {
	// Node is the machine: planner.NewNode makes one of a node's own values, planner.Plan those of a cluster.
	Node plan.Node
	// Proxmox is asked, right before a VM is changed or deleted, whether it is this node's own. *proxmoxapi.Client
	// implements it. It is required.
	Proxmox Proxmox
	// Origin says in a few words what the node is made from. The VM's description keeps it. A node that was made from
	// something else, and is not configured here, is pointed out.
	Origin string
	// Template is the VMID of the template to clone. It is required where Node.Template is set, and no other.
	Template pulumi.IntInput
	// Image is the volume that the node boots: an ISO file where the node has a CD-ROM drive, else an image that becomes
	// its system disk. It is required where Node.Template is not set.
	Image pulumi.StringInput
	// CloudInit is the network that the cloud-init drive states; nil: the node has no such drive.
	CloudInit *proxmoxvm.CloudInit
	// Mapping is the name of the resource mapping of the node's GPU. Without it, the GPU is passed by its address, which
	// Proxmox VE allows to root@pam only.
	Mapping pulumi.StringInput
	// AgentTimeout bounds how long the guest agent of an image that has one is waited for when the VM is read ("5m");
	// empty: the provider's 15 minutes.
	AgentTimeout string
	// Discovery finds an address that is not set; nil: IPAddress stays unknown.
	Discovery *proxmoxvm.Discovery
	// Firewall lets in what it names and nothing else; nil: everything.
	Firewall []plan.FirewallRule
	// Configuration is applied to the node; nil leaves it in maintenance mode.
	Configuration *NodeConfiguration
	// Replace replaces the VM once when it becomes true. Becoming false again changes nothing.
	Replace bool
	// Rebalance migrates the VM to the node's host. False leaves it where it is.
	Rebalance bool
}

// NodeConfiguration is the machine configuration of a node.
type NodeConfiguration struct {
	// Client holds the credentials of the cluster.
	Client machine.ClientConfigurationOutput
	// Machine is the machine configuration that the node shares with others. It is kept secret.
	Machine pulumi.StringInput
	// Patches are particular to the node and applied last; nil: none. They are kept secret.
	Patches pulumi.StringArrayInput
	// Staged applies a changed configuration at the node's next reboot.
	Staged bool
}

// clusterNode is a node with what its cluster knows of it in addition.
type clusterNode struct {
	TalosNodeArgs

	// fetch is an image that is the node's own, instead of Image.
	fetch *vmimage.Download
	// hooks of the VM, and of its companions.
	hooks      *pulumi.ResourceHookBinding
	companions proxmoxvm.CompanionHooks
	// mappingHooks are those of the resource mapping of its GPU.
	mappingHooks *pulumi.ResourceHookBinding
	// after names what must be done before the VM is created or changed.
	after []pulumi.Resource
	// configuration is TalosNodeArgs.Configuration with its hooks.
	configuration *clusterConfiguration
	// incomplete replaces the VM, if the state says that its creation failed. absent says that there is no VM.
	incomplete, absent bool
	// state is that of an existing VM.
	state proxmoxvm.State
	// identities tell the node's VM from another.
	identities *vmidentity.Identities
	// identified is told the SMBIOS UUID of the VM, empty where the state has none; nil: not asked for.
	identified func(uuid string)
	// replacementOrder is the order that the node is replaced in; nil: it waits for no other.
	replacementOrder *replacementOrder
}

// clusterConfiguration is a NodeConfiguration within the rollouts of a cluster.
type clusterConfiguration struct {
	NodeConfiguration

	// after names what must be done before the node is configured; its VM is created without waiting for it.
	after []pulumi.Resource
	// created run before the configuration is applied for the first time, changed before it is changed, removed before
	// the node loses it.
	created, changed, removed []*pulumi.ResourceHook
}

// TalosNode is one Talos machine: its VM, and the configuration it runs with.
type TalosNode struct {
	pulumi.ResourceState

	// VMID of the VM.
	VMID pulumi.IntOutput `pulumi:"vmid"`
	// Name of the VM, and of the node in Kubernetes.
	Name pulumi.StringOutput `pulumi:"name"`
	// Host is where the VM is, read from the VM.
	Host pulumi.StringOutput `pulumi:"host"`
	// IPAddress is nil while it is not known.
	IPAddress pulumi.StringPtrOutput `pulumi:"ipAddress"`
	// MACAddress of the first network interface.
	MACAddress pulumi.StringOutput `pulumi:"macAddress"`

	// VM is the machine itself.
	VM *vm.VirtualMachine
	// Applied is the configuration on the node; nil when none is applied.
	Applied *machine.ConfigurationApply

	node plan.Node
	name string // of the component
	uuid pulumi.StringPtrOutput
	// companions of the VM, such as its firewall: they exist before the node is configured, and are deleted after it.
	companions []pulumi.Resource
}

// NewTalosNode creates one machine that belongs to no TalosCluster: a TalosCluster creates its own. Its hooks refuse to
// touch a VM that is not the node's own, so a program that deletes it must run: 'pulumi destroy --run-program'.
//
// It needs a proxmoxve provider, and a talos provider where a configuration is applied; both come with the options or
// from the parent. Nothing is registered when args lack something.
func NewTalosNode(ctx *pulumi.Context, name string, args *TalosNodeArgs,
	opts ...pulumi.ResourceOption,
) (*TalosNode, error) {
	if err := args.check(name); err != nil {
		return nil, err
	}

	node, err := standalone(ctx, name, *args)
	if err != nil {
		return nil, err
	}

	return newTalosNode(ctx, name, node, opts...)
}

// standalone is a node that makes up a cluster of its own, which the program does not bootstrap: its VM has the hooks
// that the VMs of such a cluster have.
func standalone(ctx *pulumi.Context, name string, args TalosNodeArgs) (*clusterNode, error) {
	p := planner.Standalone(args.Node)
	scope := scopeOf(ctx, name, hookArgs{plan: p, proxmox: args.Proxmox, addresses: &proxmoxvm.AddressBook{}})

	var (
		errs  []error
		hooks = vmHooks{deletions: true, alone: true}
	)

	register := hookutil.Registering(ctx, name, &errs)
	errs = append(errs, hooks.register(ctx, name, vmrestart.New(vmrestart.Options{
		Scope: scope, Proxmox: args.Proxmox, Permissions: (*preflight.Report)(nil),
		Rollout: externalRollout(scope), Nodes: map[string]plan.Node{name + tokens.VMSuffix: args.Node},
	}), register))

	node := &clusterNode{
		TalosNodeArgs: args, identities: scope.Identities,
		hooks: hooks.of(hooks.checkVMIDFree), companions: hooks.ofCompanions(), mappingHooks: hooks.ofMappings(),
	}
	if args.Configuration != nil {
		var check *pulumi.ResourceHook

		register(&check, "machine-checked", checkMachine(scope, args.Proxmox, args.Node))
		node.configuration = &clusterConfiguration{
			NodeConfiguration: *args.Configuration,
			created:           []*pulumi.ResourceHook{check}, changed: []*pulumi.ResourceHook{check},
		}
	}

	return node, errors.Join(errs...)
}

// checkMachine is a hook that runs before the provider sends a configuration, which holds the keys of the cluster: it
// would send it to whatever machine answers at the node's address.
func checkMachine(scope rollout.Scope, proxmox Proxmox, n plan.Node) hookutil.Func {
	return func(ctx context.Context, args *pulumi.ResourceHookArgs) error {
		if err := scope.Identities.CheckNow(ctx, n); err != nil {
			return err
		}

		uuid, err := vmidentity.UUIDOf(ctx, proxmox, n.VMID)
		if err != nil {
			return err
		}

		target := talosapi.Target{Name: n.Name, Address: hookutil.String(args.NewInputs, "node"), UUID: uuid}

		return talosapi.WaitMachine(ctx, target, cluster.CredentialsOf(args.NewInputs), scope.Plan.NodeTimeout,
			scope.Progress)
	}
}

// newTalosNode creates the VM of a node and, where it has a configuration, applies that.
func newTalosNode(ctx *pulumi.Context, name string, args *clusterNode,
	opts ...pulumi.ResourceOption,
) (*TalosNode, error) {
	node, err := newNode(ctx, name, args, opts...)
	if err != nil {
		return nil, err
	}

	if args.configuration == nil {
		vmimage.WarnOnImageDrift(ctx, args.Node, args.description(), "With bootstrap: external, Talos is not upgraded by "+
			"that", node.VM)
	} else if err := node.configure(ctx, args.configuration); err != nil {
		return nil, err
	} else {
		args.replacementOrder.add(node.Applied)
	}

	return node, node.finish(ctx)
}

// newNode creates the VM. The node is complete after configure, where it is configured, and finish: what a first
// control plane is configured with holds its own address.
func newNode(ctx *pulumi.Context, name string, args *clusterNode, opts ...pulumi.ResourceOption) (*TalosNode, error) {
	n := args.Node
	node := &TalosNode{node: n, name: name}

	if err := ctx.RegisterComponentResourceV2(NodeType, name, machineInputs(n), node, opts...); err != nil {
		return nil, err
	}

	image, err := node.fetch(ctx, args)
	if err != nil {
		return nil, err
	}

	if node.VM, err = proxmoxvm.New(ctx, name+tokens.VMSuffix, args.machine(image), pulumi.Parent(node)); err != nil {
		return nil, err
	}

	// What comes after the VM has both from here.
	node.VMID, node.uuid = args.identities.Of(n, node.VM)

	if node.companions, err = proxmoxvm.NewCompanions(ctx, name, n, args.Firewall, node.VM, node.VMID, args.companions,
		pulumi.Parent(node)); err != nil {
		return nil, err
	}

	if args.identified != nil {
		node.VM.Smbios.Uuid().ApplyT(func(uuid *string) error {
			if uuid == nil {
				uuid = new(string)
			}

			args.identified(*uuid)

			return nil
		})
	}

	node.Name = node.VM.Name
	node.Host = node.VM.NodeName
	node.MACAddress = pulumi.String(n.MAC).ToStringOutput()
	node.IPAddress = proxmoxvm.AddressOf(ctx, n, args.Discovery, node.VM)

	if args.absent {
		proxmoxvm.WarnOnAddress(ctx, n, node.VM)
	}

	return node, nil
}

func (args *clusterNode) description() string {
	n := args.Node

	return "Talos " + string(n.Role) + " of pool " + n.Pool + ", made by Pulumi from " + args.Origin
}

// machine is what the node's VM is made of. image is the volume that it boots, nil for a clone.
func (args *clusterNode) machine(image pulumi.StringInput) *proxmoxvm.Args {
	n := args.Node

	return &proxmoxvm.Args{
		Node: n, Description: args.description(),
		Template: args.Template, Image: image, CloudInit: args.CloudInit, Mapping: args.Mapping,
		AgentTimeout: args.AgentTimeout,
		Rebalance:    args.Rebalance, Replace: args.Replace, Incomplete: args.incomplete, State: args.state,
		Hooks: args.hooks,
		After: slices.Concat(args.after, args.replacementOrder.next()),
	}
}

func (args *TalosNodeArgs) check(name string) error {
	if args == nil {
		return errors.New("TalosNode " + name + ": args are required")
	}

	n := args.Node

	switch {
	case args.Proxmox == nil:
		return fmt.Errorf("TalosNode %s: Proxmox is required; set it to a *proxmoxapi.Client", name)
	case n.Name == "" || n.Host == "" || n.VMID == 0 || len(n.Disks) == 0 || len(n.NICs) == 0:
		return fmt.Errorf("TalosNode %s: Node needs a name, a host, a VMID, a disk and a network interface; "+
			"make it with planner.NewNode", name)
	case (n.Template != "") != (args.Template != nil):
		return fmt.Errorf("TalosNode %s: the VMID of the template goes with the name of one", name)
	case n.Template == "" && args.Image == nil:
		return fmt.Errorf("TalosNode %s: Image is required, for the node has no template", name)
	case args.Configuration != nil && !n.Address.IsValid() && args.Discovery == nil:
		return fmt.Errorf("TalosNode %s: a configuration cannot be applied without an address", name)
	case args.Configuration != nil && (args.Configuration.Machine == nil || args.Configuration.Client.OutputState == nil):
		return fmt.Errorf("TalosNode %s: Configuration needs Client and Machine", name)
	default:
		return nil
	}
}

// fetch is the image that the node boots; nil for a clone.
func (node *TalosNode) fetch(ctx *pulumi.Context, args *clusterNode) (pulumi.StringInput, error) {
	if args.fetch == nil {
		return args.Image, nil
	}

	schematic, err := vmimage.NewSchematic(ctx, node.name+tokens.SchematicSuffix, args.fetch.File, pulumi.Parent(node))
	if err != nil {
		return nil, err
	}

	return vmimage.NewFile(ctx, node.name+tokens.ImageSuffix, node.node.Host, args.fetch, schematic, pulumi.Parent(node))
}

// configure applies a configuration to the node.
func (node *TalosNode) configure(ctx *pulumi.Context, c *clusterConfiguration) error {
	// Always the node itself: a node without configuration cannot be reached through another.
	itself := node.IPAddress.Elem()

	patches := c.Patches
	if patches == nil {
		patches = pulumi.StringArray{}
	}

	args := &machine.ConfigurationApplyArgs{
		ClientConfiguration:       secretClient(c.Client),
		MachineConfigurationInput: pulumi.ToSecret(c.Machine).(pulumi.StringOutput),
		// The operator's patches may hold anything.
		ConfigPatches: pulumi.ToSecret(patches).(pulumi.StringArrayOutput),
		Node:          itself,
		Endpoint:      itself,
	}

	if c.Staged {
		args.ApplyMode = pulumi.String("staged")
	}

	applied, err := machine.NewConfigurationApply(ctx, node.name+tokens.ConfigurationSuffix, args,
		pulumi.Parent(node),
		pulumi.DependsOn(slices.Concat([]pulumi.Resource{node.VM}, node.companions, c.after)),
		// A recreated VM has lost its configuration, whether the program or an operator deleted the old one.
		pulumi.ReplaceWith([]pulumi.Resource{node.VM}),
		pulumi.ReplacementTrigger(node.uuid),
		// What a node leaves behind is cleared up before it is configured again, never after.
		pulumi.DeleteBeforeReplace(true),
		pulumi.AdditionalSecretOutputs([]string{
			"machineConfiguration", "machineConfigurationInput", "clientConfiguration", "configPatches",
		}),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{
			BeforeCreate: c.created, BeforeUpdate: c.changed, BeforeDelete: c.removed,
		}))
	node.Applied = applied

	return err
}

func (node *TalosNode) finish(ctx *pulumi.Context) error {
	return ctx.RegisterResourceOutputs(node, outputsOf(node))
}
