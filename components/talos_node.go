package components

import (
	"errors"
	"fmt"
	"slices"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/tokens"
)

// TalosNodeArgs describe one machine. What it boots first is a template, an image that is there, or one that it
// fetches; all of that is used when the VM is made and ignored afterwards.
type TalosNodeArgs struct {
	// Node is everything that was decided about the machine.
	Node plan.Node
	// Origin says in a few words what the node is made from. The VM's description keeps it. A node that was made from
	// something else, and is not configured here, is pointed out.
	Origin string
	// Template is the VMID of the template to clone. It is required where Node.Template is set, and no other.
	Template pulumi.IntInput
	// Image is the volume that the node boots: an ISO file where the node has a CD-ROM drive, else an image that becomes
	// its system disk.
	Image pulumi.StringInput
	// Fetch is an image that is the node's own, instead of Image.
	Fetch *proxmoxvm.Download
	// CloudInit is the network that the cloud-init drive states; nil: the node has no such drive.
	CloudInit *proxmoxvm.CloudInit
	// Mapping is the name of the resource mapping of the node's GPU. Without it, the GPU is passed by its address, which
	// Proxmox VE allows to root@pam only.
	Mapping pulumi.StringInput
	// AgentTimeout bounds how long the guest agent of an image that has one is waited for when the VM is read; zero: the
	// provider's 15 minutes.
	AgentTimeout string
	// Discovery finds an address that nobody states; nil: nothing does.
	Discovery *proxmoxvm.Discovery
	// Firewall lets in what it names and nothing else; nil: everything.
	Firewall []plan.FirewallRule
	// Hooks of the VM; nil: none.
	Hooks *pulumi.ResourceHookBinding
	// After names what must be done before the VM is made or changed.
	After []pulumi.Resource
	// Configuration is applied to the node; nil leaves it waiting for one.
	Configuration *NodeConfiguration
	// Replace makes the VM anew, once when it becomes true; becoming false again changes nothing.
	Replace bool
	// Incomplete replaces the VM, if the state says that its creation failed.
	Incomplete bool
	// State is that of a VM that is there.
	State proxmoxvm.State
	// Rebalance moves the VM to the node's host, by migration. False leaves it where it is.
	Rebalance bool

	// absent says that the VM is not there.
	absent bool
	// replacementOrder is the order that the node is replaced in; nil: it waits for no other.
	replacementOrder *replacementOrder
	// identified is told the SMBIOS UUID of the VM, empty where the state has none; nil: nothing is.
	identified func(uuid string)

	// identities tell the node's VM from another; nil: nothing does. companions are the hooks of what belongs to the VM.
	identities *proxmoxvm.Identities
	companions *pulumi.ResourceHookBinding
}

// NodeConfiguration is what a node is told to be.
type NodeConfiguration struct {
	// Client holds the credentials of the cluster.
	Client machine.ClientConfigurationOutput
	// Machine is the machine configuration of the node's pool. It is kept secret.
	Machine pulumi.StringInput
	// Patches are particular to the node and applied last.
	Patches pulumi.StringArrayInput
	// After names what must be done before the node is configured; its VM is made without waiting for it.
	After []pulumi.Resource
	// Hooks run before the configuration is applied for the first time, Changed before it is changed, Removed before the
	// node loses it.
	Hooks, Changed, Removed []*pulumi.ResourceHook
	// Staged leaves a changed configuration to the node's next reboot.
	Staged bool
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

// NewTalosNode makes one machine. It needs a proxmoxve provider, and a talos provider where a configuration is applied
// or a schematic is made; both come with the options or from the parent.
func NewTalosNode(ctx *pulumi.Context, name string, args *TalosNodeArgs, opts ...pulumi.ResourceOption) (*TalosNode,
	error,
) {
	node, err := newNode(ctx, name, args, opts...)
	if err != nil {
		return nil, err
	}

	if args.Configuration == nil {
		proxmoxvm.WarnOnImageDrift(ctx, args.Node, args.description(), "With bootstrap: external, Talos is not upgraded by "+
			"that", node.VM)
	} else if err := node.configure(ctx, args.Configuration); err != nil {
		return nil, err
	} else {
		args.replacementOrder.add(node.Applied)
	}

	return node, node.finish(ctx)
}

// newNode makes the VM. The node is whole after configure, where it is configured, and finish: what a first control
// plane is configured with holds its own address.
func newNode(ctx *pulumi.Context, name string, args *TalosNodeArgs, opts ...pulumi.ResourceOption) (*TalosNode, error) {
	if err := args.check(name); err != nil {
		return nil, err
	}

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

func (args *TalosNodeArgs) description() string {
	n := args.Node

	return "Talos " + string(n.Role) + " of pool " + n.Pool + ", made by Pulumi from " + args.Origin
}

// machine is what the node's VM is made of. image is the volume that it boots, nil for a clone.
func (args *TalosNodeArgs) machine(image pulumi.StringInput) *proxmoxvm.Args {
	n := args.Node

	return &proxmoxvm.Args{
		Node: n, Description: args.description(),
		Template: args.Template, Image: image, CloudInit: args.CloudInit, Mapping: args.Mapping,
		AgentTimeout: args.AgentTimeout,
		Rebalance:    args.Rebalance, Replace: args.Replace, Incomplete: args.Incomplete, State: args.State,
		Hooks: args.Hooks,
		After: slices.Concat(args.After, args.replacementOrder.next()),
	}
}

func (args *TalosNodeArgs) check(name string) error {
	if args == nil {
		return errors.New("TalosNode " + name + ": args are required")
	}

	n := args.Node

	switch {
	case n.Name == "" || n.Host == "" || n.VMID == 0 || len(n.Disks) == 0 || len(n.NICs) == 0:
		return fmt.Errorf("TalosNode %s: a name, a host, a VMID, a disk and a network interface are required", name)
	case (n.Template != "") != (args.Template != nil):
		return fmt.Errorf("TalosNode %s: the VMID of the template goes with the name of one", name)
	case n.Template == "" && (args.Image == nil) == (args.Fetch == nil):
		return fmt.Errorf("TalosNode %s: without a template, an image is required, there or fetched", name)
	case args.Configuration != nil && !n.Address.IsValid() && args.Discovery == nil:
		return fmt.Errorf("TalosNode %s: a configuration cannot be applied without an address", name)
	default:
		return nil
	}
}

// fetch is the image that the node boots; nil for a clone.
func (node *TalosNode) fetch(ctx *pulumi.Context, args *TalosNodeArgs) (pulumi.StringInput, error) {
	if args.Fetch == nil {
		return args.Image, nil
	}

	schematic, err := proxmoxvm.NewSchematic(ctx, node.name+"-schematic", args.Fetch.File, pulumi.Parent(node))
	if err != nil {
		return nil, err
	}

	return proxmoxvm.NewFile(ctx, node.name+"-image", node.node.Host, args.Fetch, schematic, pulumi.Parent(node))
}

// configure applies a configuration to the node.
func (node *TalosNode) configure(ctx *pulumi.Context, c *NodeConfiguration) error {
	// Always the node itself: a node without configuration cannot be reached through another.
	itself := node.IPAddress.Elem()

	args := &machine.ConfigurationApplyArgs{
		ClientConfiguration:       secretClient(c.Client),
		MachineConfigurationInput: pulumi.ToSecret(c.Machine).(pulumi.StringOutput),
		// The operator's patches may hold anything.
		ConfigPatches: pulumi.ToSecret(c.Patches).(pulumi.StringArrayOutput),
		Node:          itself,
		Endpoint:      itself,
	}

	if c.Staged {
		args.ApplyMode = pulumi.String("staged")
	}

	applied, err := machine.NewConfigurationApply(ctx, node.name+tokens.ConfigurationSuffix, args,
		pulumi.Parent(node),
		pulumi.DependsOn(slices.Concat([]pulumi.Resource{node.VM}, node.companions, c.After)),
		// A VM made again has lost its configuration: by the program, or because somebody had deleted it.
		pulumi.ReplaceWith([]pulumi.Resource{node.VM}),
		pulumi.ReplacementTrigger(node.uuid),
		// What a node leaves behind is cleared up before it is configured again, never after.
		pulumi.DeleteBeforeReplace(true),
		pulumi.AdditionalSecretOutputs([]string{
			"machineConfiguration", "machineConfigurationInput", "clientConfiguration", "configPatches",
		}),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{
			BeforeCreate: c.Hooks, BeforeUpdate: c.Changed,
			BeforeDelete: c.Removed,
		}))
	node.Applied = applied

	return err
}

func (node *TalosNode) finish(ctx *pulumi.Context) error {
	return ctx.RegisterResourceOutputs(node, pulumi.Map{
		"vmid": node.VMID, "name": node.Name, "host": node.Host, "macAddress": node.MACAddress, "ipAddress": node.IPAddress,
	})
}

// secretClient marks the cluster's credentials, whatever the provider says of them.
func secretClient(c machine.ClientConfigurationOutput) machine.ClientConfigurationOutput {
	return pulumi.ToSecret(c).(machine.ClientConfigurationOutput)
}
