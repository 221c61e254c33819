package components

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/plan"
)

// TalosNodeArgs describe one machine.
type TalosNodeArgs struct {
	// Node is everything that was decided about the machine.
	Node plan.Node
	// Template is the VMID of the template to clone. It is used when the VM is made and ignored afterwards.
	Template pulumi.IntInput
	// Configuration is applied to the node; nil leaves it waiting for one.
	Configuration *NodeConfiguration
	// Rebalance moves the VM to the node's host, by migration. False leaves it where it is.
	Rebalance bool
}

// NodeConfiguration is what a node is told to be.
type NodeConfiguration struct {
	// Client holds the credentials of the cluster.
	Client machine.ClientConfigurationOutput
	// Machine is the machine configuration of the node's pool. It is kept secret.
	Machine pulumi.StringInput
	// Patches are particular to the node and applied last.
	Patches []string
	// After names what must be done before the node is configured; its VM is made without waiting for it.
	After []pulumi.Resource
	// Hooks run before the configuration is applied for the first time.
	Hooks []*pulumi.ResourceHook
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
}

// NewTalosNode makes one machine. It needs a proxmoxve provider, and a talos provider where a configuration is applied;
// both come with the options or from the parent.
func NewTalosNode(ctx *pulumi.Context, name string, args *TalosNodeArgs, opts ...pulumi.ResourceOption) (*TalosNode, error) {
	if args == nil {
		return nil, errors.New("TalosNode " + name + ": args are required")
	}

	n := args.Node
	if n.Name == "" || n.Host == "" || n.VMID == 0 || len(n.Disks) == 0 || len(n.NICs) == 0 || args.Template == nil {
		return nil, fmt.Errorf("TalosNode %s: a name, a host, a VMID, a disk, a network interface and a template are required", name)
	}

	c := args.Configuration
	if c != nil && !n.Address.IsValid() {
		return nil, fmt.Errorf("TalosNode %s: a configuration cannot be applied without an address", name)
	}

	node := &TalosNode{}
	if err := ctx.RegisterComponentResourceV2(NodeType, name, pulumi.Map{
		"name": pulumi.String(n.Name), "pool": pulumi.String(n.Pool), "role": pulumi.String(n.Role),
		"vmid": pulumi.Int(n.VMID), "cores": pulumi.Int(n.Cores), "memoryMiB": pulumi.Int(n.MemoryMiB),
		"diskGiB": pulumi.Int(n.Disks[0].SizeGiB),
	}, node, opts...); err != nil {
		return nil, err
	}

	machineVM, err := newVM(ctx, name+"-vm", args, pulumi.Parent(node))
	if err != nil {
		return nil, err
	}

	node.VM = machineVM

	if c != nil {
		if node.Applied, err = applyConfiguration(ctx, name+"-config", n, c, machineVM, pulumi.Parent(node)); err != nil {
			return nil, err
		}
	}

	node.VMID = machineVM.VmId
	node.Name = machineVM.Name
	node.Host = machineVM.NodeName
	node.MACAddress = pulumi.String(n.MAC).ToStringOutput()
	node.IPAddress = pulumi.StringPtrFromPtr(address(n)).ToStringPtrOutput()

	return node, ctx.RegisterResourceOutputs(node, pulumi.Map{
		"vmid": node.VMID, "name": node.Name, "host": node.Host, "macAddress": node.MACAddress, "ipAddress": node.IPAddress,
	})
}

// address is nil when the node's address is not known.
func address(n plan.Node) *string {
	if !n.Address.IsValid() {
		return nil
	}

	return new(n.Address.String())
}

func newVM(ctx *pulumi.Context, name string, args *TalosNodeArgs, opts ...pulumi.ResourceOption) (*vm.VirtualMachine, error) {
	n, system, first := args.Node, args.Node.Disks[0], args.Node.NICs[0]

	nic := &vm.VirtualMachineNetworkDeviceArgs{
		Bridge:     pulumi.String(first.Bridge),
		MacAddress: pulumi.String(first.MAC),
		Model:      pulumi.String("virtio"),
	}
	if first.VLAN != 0 {
		nic.VlanId = pulumi.Int(first.VLAN)
	}

	// Used at creation only: a new template must not replace a running node.
	// So is the identity of this very machine: it changes only when the VM is made again.
	ignored := append([]string{"clone", "smbios"}, diskOptions(0)...)
	if !args.Rebalance {
		// The host is where the VM was made; an operator may have moved it since.
		ignored = append(ignored, "nodeName")
	}

	return vm.NewVirtualMachine(ctx, name, &vm.VirtualMachineArgs{
		NodeName: pulumi.String(n.Host),
		// Without it, another host would mean another VM.
		Migrate:     pulumi.Bool(args.Rebalance),
		VmId:        pulumi.Int(n.VMID),
		Name:        pulumi.String(n.Name),
		Description: pulumi.String("Talos " + string(n.Role) + " of pool " + n.Pool + ", managed by Pulumi"),
		Tags:        pulumi.ToStringArray(n.Tags),
		Clone: vm.VirtualMachineCloneArgs{
			NodeName: pulumi.String(n.Host), VmId: args.Template, DatastoreId: pulumi.String(system.Datastore), Full: pulumi.Bool(true),
		},
		Cpu:    vm.VirtualMachineCpuArgs{Cores: pulumi.Int(n.Cores), Type: pulumi.String(n.CPUType)},
		Memory: vm.VirtualMachineMemoryArgs{Dedicated: pulumi.Int(n.MemoryMiB)},
		Disks: vm.VirtualMachineDiskArray{vm.VirtualMachineDiskArgs{
			Interface: pulumi.String(system.Interface), DatastoreId: pulumi.String(system.Datastore), Size: pulumi.Int(system.SizeGiB),
		}},
		NetworkDevices: vm.VirtualMachineNetworkDeviceArray{nic},
		// An absent drive would become the host's own, an absent list a serial port.
		Cdrom:         vm.VirtualMachineCdromArgs{FileId: pulumi.String("none")},
		SerialDevices: vm.VirtualMachineSerialDeviceArray{},
		// Every read waits for an agent that is switched on and not there.
		Agent:           vm.VirtualMachineAgentArgs{Enabled: pulumi.Bool(false)},
		Smbios:          vm.VirtualMachineSmbiosArgs{Uuid: pulumi.String(uuid.NewString())},
		OperatingSystem: vm.VirtualMachineOperatingSystemArgs{Type: pulumi.String("l26")},
		OnBoot:          pulumi.Bool(n.OnBoot),
		Started:         pulumi.Bool(true),
		// A node that is deleted has no use for a shutdown, and waiting for one gains nothing.
		StopOnDestroy: pulumi.Bool(true),
	}, append(opts,
		// A VMID, a name and a MAC cannot exist twice.
		pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges(ignored))...)
}

// diskOptions are the paths of what a cloned disk has from its template. The provider does not apply them to a clone and
// reads them back all the same, some although they were never set. Its size and its datastore are not among them.
func diskOptions(disk int) []string {
	var paths []string
	for _, option := range []string{"aio", "backup", "cache", "discard", "fileFormat", "iothread", "replicate", "speed", "ssd"} {
		paths = append(paths, fmt.Sprintf("disks[%d].%s", disk, option))
	}

	return paths
}

func applyConfiguration(ctx *pulumi.Context, name string, n plan.Node, c *NodeConfiguration, machineVM *vm.VirtualMachine,
	opts ...pulumi.ResourceOption,
) (*machine.ConfigurationApply, error) {
	return machine.NewConfigurationApply(ctx, name, &machine.ConfigurationApplyArgs{
		ClientConfiguration:       secretClient(c.Client),
		MachineConfigurationInput: pulumi.ToSecret(c.Machine).(pulumi.StringOutput),
		// The operator's patches may hold anything.
		ConfigPatches: pulumi.ToSecret(pulumi.ToStringArray(c.Patches)).(pulumi.StringArrayOutput),
		// Always the node itself: a node without configuration cannot be reached through another.
		Node:     pulumi.String(n.Address.String()),
		Endpoint: pulumi.String(n.Address.String()),
	}, append(opts,
		pulumi.DependsOn(append([]pulumi.Resource{machineVM}, c.After...)),
		// A VM made again has lost its configuration: by the program, or because somebody had deleted it.
		pulumi.ReplaceWith([]pulumi.Resource{machineVM}),
		pulumi.ReplacementTrigger(machineVM.Smbios.Uuid()),
		pulumi.AdditionalSecretOutputs([]string{
			"machineConfiguration", "machineConfigurationInput", "clientConfiguration", "configPatches",
		}),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: c.Hooks}))...)
}

// secretClient marks the cluster's credentials, whatever the provider says of them.
func secretClient(c machine.ClientConfigurationOutput) machine.ClientConfigurationOutput {
	return pulumi.ToSecret(c).(machine.ClientConfigurationOutput)
}
