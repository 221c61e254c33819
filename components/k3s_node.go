package components

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/storage"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/proxmoxvm/vmimage"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/tokens"
)

// k3sNodeArgs describe one machine with K3s. What it boots first, and what it is told then, is used when the VM is made
// and ignored afterwards.
type k3sNodeArgs struct {
	// Node is everything that was decided about the machine.
	Node plan.Node
	// Origin says in a few words what the node is made from. The VM's description keeps it, and a node that was made from
	// something else is pointed out.
	Origin string
	// Template is the VMID of the template to clone. It is required where Node.Template is set, and no other.
	Template pulumi.IntInput
	// Image is the volume that becomes the node's system disk, where it is no clone.
	Image pulumi.StringInput
	// Mapping is the name of the resource mapping of the node's GPU; nil: the GPU is passed by its address, or there is
	// none.
	Mapping pulumi.StringInput
	// CloudInit is the network that the cloud-init drive states. Its user data are the node's.
	CloudInit proxmoxvm.CloudInit
	// UserData are what the node is told when it boots first. They are kept secret.
	UserData pulumi.StringInput
	// Snippets is the datastore that holds the user data.
	Snippets string
	// Private has only root read the user data on the host. It takes a login as root: the file is root's.
	Private bool
	// AgentTimeout bounds how long the guest agent is waited for when the VM is read; empty: the provider's 15 minutes.
	AgentTimeout string
	// Discovery finds an address that is not set; nil: nothing does.
	Discovery *proxmoxvm.Discovery
	// Firewall lets in what it names and nothing else; nil: everything.
	Firewall []plan.FirewallRule
	// Hooks of the VM; nil: none.
	Hooks *pulumi.ResourceHookBinding
	// After names what must be done before the VM is made or changed.
	After []pulumi.Resource
	// Incomplete replaces the VM, if the state says that its creation failed.
	Incomplete bool
	// Absent says that the VM is not there. What it will be told is written for it, whatever is there of an earlier one.
	Absent bool
	// State is that of a VM that is there.
	State proxmoxvm.State
	// Rebalance moves the VM to the node's host, by migration. False leaves it where it is.
	Rebalance bool
	// Replace recreates the VM, with user data of now, once when it becomes true; becoming false again changes nothing.
	Replace bool

	// identities tell the node's VM from another. companions are the hooks of what belongs to the VM.
	identities *vmidentity.Identities
	companions proxmoxvm.CompanionHooks
	// fileHooks are the hooks of the user data's file.
	fileHooks *pulumi.ResourceHookBinding
}

// K3sNode is one machine with K3s: its user data, its VM, and that it has joined.
type K3sNode struct {
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
	// Joined is there once the node was ready in the cluster. Its input has the version that it runs.
	Joined *pulumi.Stash

	node       plan.Node
	name       string // of the component
	uuid       pulumi.StringPtrOutput
	companions []pulumi.Resource // they are deleted before the VM
}

// newK3sNode creates the VM of a node, which sets itself up. The node is complete after join and finish.
func newK3sNode(ctx *pulumi.Context, name string, args *k3sNodeArgs, opts ...pulumi.ResourceOption) (*K3sNode, error) {
	n := args.Node
	node := &K3sNode{node: n, name: name}

	if err := ctx.RegisterComponentResourceV2(K3sNodeType, name, machineInputs(n), node, opts...); err != nil {
		return nil, err
	}

	userData, err := newUserData(ctx, name+tokens.UserDataSuffix, args, pulumi.Parent(node))
	if err != nil {
		return nil, err
	}

	if node.VM, err = proxmoxvm.New(ctx, name+tokens.VMSuffix, args.machine(userData), pulumi.Parent(node)); err != nil {
		return nil, err
	}

	vmimage.WarnOnImageDrift(ctx, n, args.description(), "A running node is not changed: replace it with "+
		"lifecycle.replace", node.VM)

	// What comes after the VM has both from here.
	node.VMID, node.uuid = args.identities.Of(n, node.VM)

	if node.companions, err = proxmoxvm.NewCompanions(ctx, name, n, args.Firewall, node.VM, node.VMID, args.companions,
		pulumi.Parent(node)); err != nil {
		return nil, err
	}

	node.Name, node.Host = node.VM.Name, node.VM.NodeName
	node.MACAddress = pulumi.String(n.MAC).ToStringOutput()
	node.IPAddress = proxmoxvm.AddressOf(ctx, n, args.Discovery, node.VM)

	if args.Absent {
		proxmoxvm.WarnOnAddress(ctx, n, node.VM)
	}

	return node, nil
}

func (args *k3sNodeArgs) description() string {
	role := "agent"
	if args.Node.Role == spec.RoleControlPlane {
		role = "server"
	}

	return "K3s " + role + " of pool " + args.Node.Pool + ", made by Pulumi from " + args.Origin
}

// machine is what the node's VM is made of.
func (args *k3sNodeArgs) machine(userData pulumi.StringInput) *proxmoxvm.Args {
	n, drive := args.Node, args.CloudInit
	drive.UserData = userData

	return &proxmoxvm.Args{
		Node: n, Description: args.description(),
		Template: args.Template, Image: args.Image, Mapping: args.Mapping, CloudInit: &drive, AgentTimeout: args.AgentTimeout,
		Rebalance: args.Rebalance, Replace: args.Replace,
		Incomplete: args.Incomplete, State: args.State, Hooks: args.Hooks, After: args.After,
	}
}

// recreated says that this run makes the VM, or makes it again: another one reads its user data when it boots first.
func (args *k3sNodeArgs) recreated() bool {
	return args.Absent || args.Replace && !args.State.Replaced
}

// keptUserData are the properties of the user data that do not change. Another host would mean another file, and so
// would another mode. Other user data would be another instance to cloud-init, which would set a running node up again
// when it is restarted; on another datastore, its VM would not find them, and not start any more.
func (args *k3sNodeArgs) keptUserData() []string {
	kept := []string{"nodeName", "fileMode"}
	if !args.recreated() {
		kept = append(kept, "sourceRaw", "datastoreId")
	}

	return kept
}

// newUserData writes the user data to the node's host, and returns the volume that they become.
func newUserData(ctx *pulumi.Context, name string, args *k3sNodeArgs,
	opts ...pulumi.ResourceOption,
) (pulumi.StringInput, error) {
	var mode pulumi.StringPtrInput
	if args.Private {
		mode = pulumi.String("0600")
	}

	file, err := storage.NewFile(ctx, name, &storage.FileArgs{
		NodeName: pulumi.String(args.Node.Host), DatastoreId: pulumi.String(args.Snippets),
		ContentType: pulumi.String("snippets"), FileMode: mode,
		SourceRaw: storage.FileSourceRawArgs{
			Data: pulumi.ToSecret(args.UserData).(pulumi.StringOutput), FileName: pulumi.String(args.Node.Name + ".yaml"),
		},
	}, append(opts,
		pulumi.AdditionalSecretOutputs([]string{"sourceRaw"}),
		pulumi.IgnoreChanges(args.keptUserData()),
		pulumi.ResourceHooks(args.fileHooks),
		// The new file has the name of the old one.
		pulumi.DeleteBeforeReplace(true))...)
	if err != nil {
		return nil, err
	}

	if !args.recreated() {
		args.warnOnUserDataDrift(ctx, file)
	}

	return file.ID().ToStringOutput(), nil
}

// warnOnUserDataDrift warns where the user data of a node differs from the configuration: they are applied at the first
// boot only.
func (args *k3sNodeArgs) warnOnUserDataDrift(ctx *pulumi.Context, file *storage.File) {
	pulumi.All(file.SourceRaw.Data(), args.UserData).ApplyT(func(both []any) error {
		then, _ := both[0].(*string)
		now, _ := both[1].(string)

		if then == nil {
			return nil
		}

		differ := k3sconfig.Differ(*then, now)
		if len(differ) == 0 {
			return nil
		}

		advice := "change the node by hand, or replace it with lifecycle.replace"

		// Servers that differ in these would not join.
		if shared := k3sconfig.DifferShared(*then, now); args.Node.Role == spec.RoleControlPlane && len(shared) > 0 {
			advice = fmt.Sprintf("revert the change, or change the node by hand. K3s requires that all servers have the "+
				"same %s: until all are changed, no server can be added or replaced (stacks/docs/k3s.md, Change settings that "+
				"all servers share)", strings.Join(shared, ", "))
		}

		return ctx.Log.Warn(fmt.Sprintf("the user data of %s differs from the configuration: %s. User data is applied "+
			"at the first boot only: %s", args.Node.Name, strings.Join(differ, ", "), advice), nil)
	})
}

// join is there when the node is ready in the cluster, with the version that it states: its hooks see to that. It comes
// after those that change before the node does.
func (node *K3sNode) join(ctx *pulumi.Context, known pulumi.MapInput, hooks *pulumi.ResourceHookBinding,
	before []pulumi.Resource,
) error {
	joined, err := pulumi.NewStash(ctx, node.name+tokens.JoinedSuffix, &pulumi.StashArgs{Input: known},
		pulumi.Parent(node), pulumi.DependsOn(slices.Concat([]pulumi.Resource{node.VM}, node.companions, before)),
		// Who it is does not change.
		pulumi.IgnoreChanges([]string{"input.name", "input.vmid", "input.uuid", "input.address"}),
		// A VM that is made again has to join again: by the program, or because an operator had deleted it.
		pulumi.ReplaceWith([]pulumi.Resource{node.VM}), pulumi.ReplacementTrigger(node.uuid),
		// The node that leaves does so before another of its name comes.
		pulumi.DeleteBeforeReplace(true), pulumi.ResourceHooks(hooks))
	node.Joined = joined

	return err
}

func (node *K3sNode) finish(ctx *pulumi.Context) error {
	return ctx.RegisterResourceOutputs(node, outputsOf(node))
}
