// Package proxmoxvm makes the VM of a node: its arguments, image, firewall, high availability and address. Package
// vmidentity tells which VM that is.
package proxmoxvm

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/uuid"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// CloudInit is what a cloud-init drive states.
type CloudInit struct {
	// Address with the length of the network, and the router. Invalid: the machine asks DHCP.
	Address netip.Prefix
	Gateway netip.Addr
	// Nameservers may be empty.
	Nameservers []netip.Addr
	// UserData is the volume of the user data; nil: Proxmox VE writes its own.
	UserData pulumi.StringInput
}

// Args are the arguments of a VM, whatever runs in it.
type Args struct {
	Node plan.Node
	// Description is kept by the VM.
	Description string
	// Template is the VMID of the template to clone, Image the volume that is booted otherwise.
	Template     pulumi.IntInput
	Image        pulumi.StringInput
	CloudInit    *CloudInit
	Mapping      pulumi.StringInput
	AgentTimeout string
	// Rebalance moves the VM to its host; Replace replaces it, once when it becomes true, unless State says that it was.
	Rebalance, Replace bool
	// Incomplete replaces it, if the state says that its creation failed.
	Incomplete bool
	// State is that of a VM that is there.
	State State
	// Hooks of the VM; nil: none.
	Hooks *pulumi.ResourceHookBinding
	// After names what must be done before it is made or changed.
	After []pulumi.Resource
}

// New creates the VM of a node.
func New(ctx *pulumi.Context, name string, args *Args, opts ...pulumi.ResourceOption) (*vm.VirtualMachine, error) {
	n := args.Node
	id := uuid.NewString()

	v := &vm.VirtualMachineArgs{
		NodeName: pulumi.String(n.Host),
		// Without it, another host would mean another VM.
		Migrate:     pulumi.Bool(args.Rebalance),
		VmId:        pulumi.Int(n.VMID),
		Name:        pulumi.String(n.Name),
		Description: pulumi.String(vmidentity.Describe(args.Description, id)),
		Tags:        pulumi.ToStringArray(n.Tags),
		Cpu: vm.VirtualMachineCpuArgs{
			Cores: pulumi.Int(n.Cores), Type: pulumi.String(n.CPUType),
			Numa: pulumi.Bool(n.NUMA),
			// The provider's own default is ten times that of Proxmox VE.
			Units: pulumi.Int(cmp.Or(n.CPUUnits, proxmoxapi.DefaultCPUUnits)),
		},
		Memory: memory(n),
		// An absent drive would become the host's own, an absent list a serial port.
		Cdrom:           vm.VirtualMachineCdromArgs{FileId: pulumi.String("none")},
		SerialDevices:   vm.VirtualMachineSerialDeviceArray{},
		Agent:           agent(args),
		Smbios:          vm.VirtualMachineSmbiosArgs{Uuid: pulumi.String(id)},
		OperatingSystem: vm.VirtualMachineOperatingSystemArgs{Type: pulumi.String("l26")},
		OnBoot:          pulumi.Bool(n.OnBoot),
		Protection:      pulumi.Bool(n.Protection),
		Started:         pulumi.Bool(true),
		// A node that is deleted has no use for a shutdown, and waiting for one gains nothing.
		StopOnDestroy: pulumi.Bool(true),
		// The provider's own default, stated: see speed.
		Watchdog: vm.VirtualMachineWatchdogArgs{
			Enabled: pulumi.Bool(false), Model: pulumi.String("i6300esb"),
			Action: pulumi.String("none"),
		},
	}

	opts = slices.Concat(opts, replaceOnce(v, args.Replace), replaceIncomplete(args.Incomplete))

	if args.State.Mark > 0 {
		v.TimeoutMigrate = pulumi.Int(migrateTimeout + args.State.Mark)
	}

	addHardware(v, n, args.Mapping)
	addBoot(v, args)

	if args.Hooks != nil {
		opts = append(opts, pulumi.ResourceHooks(args.Hooks))
	}

	machineVM, err := vm.NewVirtualMachine(ctx, name, v, append(opts,
		// A VMID, a name and a MAC cannot exist twice.
		pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges(ignored(args)),
		// The provider would stop a protected VM before Proxmox VE refuses to remove it; Pulumi refuses in the preview.
		pulumi.Protect(n.Protection),
		pulumi.DependsOn(args.After))...)
	if err != nil {
		return nil, err
	}

	return machineVM, nil
}

// replaceOnce replaces the VM once when replace becomes true. To take the mark off is a change in place, which changes
// nothing on the machine.
func replaceOnce(v *vm.VirtualMachineArgs, replace bool) []pulumi.ResourceOption {
	if !replace {
		return nil
	}

	v.TimeoutClone = pulumi.Int(vmidentity.ReplacedTimeout)

	return []pulumi.ResourceOption{pulumi.ReplaceOnChanges([]string{vmidentity.ReplaceMark})}
}

// startTimeout and migrateTimeout are the provider's own, in seconds.
const startTimeout, migrateTimeout = 1800, 1800

// WarnOnImageDrift warns of a node that was made from another image than the plan says now, and says what follows. The
// description is the one that was written when the VM was made.
func WarnOnImageDrift(ctx *pulumi.Context, n plan.Node, now, so string, machineVM *vm.VirtualMachine) {
	machineVM.Description.ApplyT(func(then *string) error {
		if then == nil || *then == "" {
			return nil
		}

		before := spec.HideSecrets(vmidentity.Description(*then))
		if before == now {
			return nil
		}

		return ctx.Log.Warn(fmt.Sprintf("%s is %q; the configuration now says %q. %s", n.Name, before, now, so), nil)
	})
}

// ignored is what was used when the VM was made, and what the provider reads back otherwise than it was stated.
func ignored(args *Args) []string {
	n := args.Node
	// smbios is the identity of this very machine: it changes only when the VM is made again.
	paths := []string{"clone", "description", "smbios", "initialization", "efiDisk", "tpmState"}

	if args.State.Running {
		// Where it would start the VM, the provider takes these for unknown.
		paths = append(paths, "started", "ipv4Addresses", "ipv6Addresses", "networkInterfaceNames")
	}

	// A VM that is made again is as stated from the start.
	remade := args.Replace && !args.State.Replaced || args.Incomplete

	// The provider restarts a VM for its weight, so hooks change it.
	if !remade {
		paths = append(paths, "cpu.units")
	}

	// Disks grow in a hook of the update that a mark causes, and the provider reads their size after it. The mark is a
	// value of the state that means nothing to the machine, by how long a migration may take: it stays until the next one.
	if args.State.Mark == 0 {
		paths = append(paths, "timeoutMigrate")
	}

	if !remade {
		for _, i := range args.State.Disks {
			paths = append(paths, fmt.Sprintf("disks[%d].size", i))
		}
	}

	for i := range n.Disks {
		// Shown as changed for ever.
		paths = append(paths, fmt.Sprintf("disks[%d].speed", i))
	}

	if n.Template != "" {
		// A clone has these from its template, and the provider does not apply them to it.
		paths = append(paths, "bios", "bootOrders", "machine", "scsiHardware")
		for _, option := range []string{"aio", "backup", "cache", "discard", "fileFormat", "iothread", "replicate", "ssd"} {
			paths = append(paths, "disks[0]."+option)
		}
	} else {
		// An ISO file that has been taken out of its drive stays out; without one, no drive is made, and none is to come.
		paths = append(paths, "cdrom", "disks[0].fileId")
	}

	if !args.Rebalance {
		// The host is where the VM was made; an operator may have moved it since.
		paths = append(paths, "nodeName")
	}

	slices.Sort(paths)

	return paths
}

func memory(n plan.Node) vm.VirtualMachineMemoryArgs {
	m := vm.VirtualMachineMemoryArgs{Dedicated: pulumi.Int(n.MemoryMiB)}
	if n.Ballooning {
		m.Floating = pulumi.Int(n.MinimumMemoryMiB)
	}

	return m
}

// agent: every read of a VM waits for an agent that is switched on, so it is only where the image has one.
func agent(args *Args) vm.VirtualMachineAgentArgs {
	a := vm.VirtualMachineAgentArgs{Enabled: pulumi.Bool(args.Node.Agent)}
	if args.Node.Agent && args.AgentTimeout != "" {
		a.Timeout = pulumi.String(args.AgentTimeout)
	}

	return a
}

// addHardware adds what is the same wherever the VM boots from.
func addHardware(v *vm.VirtualMachineArgs, n plan.Node, mapping pulumi.StringInput) {
	disks := vm.VirtualMachineDiskArray{}
	for i, d := range n.Disks {
		disks = append(disks, disk(d, n.Template != "" && i == 0))
	}

	nics := vm.VirtualMachineNetworkDeviceArray{}
	for _, i := range n.NICs {
		nics = append(nics, nic(i))
	}

	v.Disks, v.NetworkDevices = disks, nics

	if n.Serial {
		v.SerialDevices = vm.VirtualMachineSerialDeviceArray{
			vm.VirtualMachineSerialDeviceArgs{Device: pulumi.String("socket")},
		}
	}

	if n.TPM {
		v.TpmState = vm.VirtualMachineTpmStateArgs{
			DatastoreId: pulumi.String(n.Disks[0].Datastore),
			Version:     pulumi.String("v2.0"),
		}
	}

	if n.ResourcePool != "" {
		v.PoolId = pulumi.String(n.ResourcePool)
	}

	if s := n.Startup; s != nil {
		startup := vm.VirtualMachineStartupArgs{
			UpDelay:   pulumi.Int(s.UpDelaySeconds),
			DownDelay: pulumi.Int(s.DownDelaySeconds),
		}
		if s.Order != nil {
			startup.Order = pulumi.Int(*s.Order)
		}

		v.Startup = startup
	}

	if n.GPU != nil {
		v.Hostpcis = vm.VirtualMachineHostpciArray{hostpci(*n.GPU, mapping)}
	}
}

func disk(d plan.Disk, cloned bool) vm.VirtualMachineDiskArgs {
	args := vm.VirtualMachineDiskArgs{
		Interface: pulumi.String(d.Interface), DatastoreId: pulumi.String(d.Datastore), Size: pulumi.Int(d.SizeGiB),
		Speed: speed(),
	}

	if cloned {
		return args
	}

	// The provider's own default is a format that not every datastore has.
	args.FileFormat = pulumi.String("raw")
	args.Cache, args.Aio = pulumi.String(d.Cache), pulumi.String(d.AIO)
	args.Discard = pulumi.String(map[bool]string{false: "ignore", true: "on"}[d.Discard])
	args.Ssd, args.Iothread = pulumi.Bool(d.SSD), pulumi.Bool(d.IOThread)
	args.Backup, args.Replicate = pulumi.Bool(d.Backup), pulumi.Bool(d.Replicate)

	return args
}

// speed is the provider's own default, no limit. A block that the provider adds by itself looks different in its second
// run, and the engine then writes the whole state for each VM, though nothing has changed.
func speed() vm.VirtualMachineDiskSpeedArgs {
	none := pulumi.Int(0)

	return vm.VirtualMachineDiskSpeedArgs{
		Read: none, ReadBurstable: none, Write: none, WriteBurstable: none,
		IopsRead: none, IopsReadBurstable: none, IopsWrite: none, IopsWriteBurstable: none,
	}
}

func nic(i plan.Interface) vm.VirtualMachineNetworkDeviceArgs {
	args := vm.VirtualMachineNetworkDeviceArgs{
		Bridge: pulumi.String(i.Bridge), MacAddress: pulumi.String(i.MAC), Model: pulumi.String("virtio"),
		Firewall: pulumi.Bool(i.Firewall),
	}

	if i.VLAN != 0 {
		args.VlanId = pulumi.Int(i.VLAN)
	}

	if i.MTU != 0 {
		args.Mtu = pulumi.Int(i.MTU)
	}

	return args
}

func hostpci(g plan.GPU, mapping pulumi.StringInput) vm.VirtualMachineHostpciArgs {
	args := vm.VirtualMachineHostpciArgs{
		// What is left out is switched off, whatever the documentation says.
		Device: pulumi.String("hostpci0"), Pcie: pulumi.Bool(g.PCIe), Rombar: pulumi.Bool(g.ROMBar), Xvga: pulumi.Bool(false),
	}

	if mapping != nil {
		args.Mapping = mapping.ToStringOutput().ToStringPtrOutput()
	} else {
		args.Id = pulumi.String(g.BDF)
	}

	return args
}

// addBoot adds what differs between a clone, an ISO file and an imported disk.
func addBoot(v *vm.VirtualMachineArgs, args *Args) {
	n, system := args.Node, args.Node.Disks[0]

	if c := args.CloudInit; c != nil {
		v.Initialization = initialization(n, *c)
	}

	if n.Template != "" {
		v.Clone = vm.VirtualMachineCloneArgs{
			NodeName: pulumi.String(n.Host), VmId: args.Template, DatastoreId: pulumi.String(system.Datastore),
			Full: pulumi.Bool(true),
		}

		return
	}

	v.Machine, v.Bios, v.ScsiHardware = pulumi.String(MachineType(n.Machine)), pulumi.String(n.Firmware),
		pulumi.String(n.SCSIController)
	v.BootOrders = pulumi.ToStringArray(n.BootOrder)

	if n.Firmware == "ovmf" {
		v.EfiDisk = vm.VirtualMachineEfiDiskArgs{
			DatastoreId: pulumi.String(system.Datastore), FileFormat: pulumi.String("raw"), Type: pulumi.String("4m"),
			PreEnrolledKeys: pulumi.Bool(false),
		}
	}

	volume := args.Image.ToStringOutput().ToStringPtrOutput()

	if n.CDROM != "" {
		// Provider 0.69.1 makes no drive that is not enabled; newer ones warn that they need not be told.
		v.Cdrom = vm.VirtualMachineCdromArgs{Enabled: pulumi.Bool(true), FileId: volume, Interface: pulumi.String(n.CDROM)}

		return
	}

	disks := v.Disks.(vm.VirtualMachineDiskArray)
	first := disks[0].(vm.VirtualMachineDiskArgs)
	first.FileId = volume
	disks[0] = first
}

func initialization(n plan.Node, c CloudInit) vm.VirtualMachineInitializationArgs {
	args := vm.VirtualMachineInitializationArgs{
		DatastoreId: pulumi.String(n.Disks[0].Datastore), Interface: pulumi.String(n.CloudInit),
		Type: pulumi.String("nocloud"),
	}

	if len(c.Nameservers) > 0 {
		servers := pulumi.StringArray{}
		for _, s := range c.Nameservers {
			servers = append(servers, pulumi.String(s.String()))
		}

		args.Dns = vm.VirtualMachineInitializationDnsArgs{Servers: servers}
	}

	if c.UserData != nil {
		args.UserDataFileId = c.UserData.ToStringOutput().ToStringPtrOutput()
	}

	ip := vm.VirtualMachineInitializationIpConfigArgs{}

	switch {
	case !c.Address.IsValid():
		ip.Ipv4 = vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String("dhcp")}
	case c.Address.Addr().Is4():
		ip.Ipv4 = vm.VirtualMachineInitializationIpConfigIpv4Args{
			Address: pulumi.String(c.Address.String()),
			Gateway: pulumi.String(c.Gateway.String()),
		}
	default:
		ip.Ipv6 = vm.VirtualMachineInitializationIpConfigIpv6Args{
			Address: pulumi.String(c.Address.String()),
			Gateway: pulumi.String(c.Gateway.String()),
		}
	}

	args.IpConfigs = vm.VirtualMachineInitializationIpConfigArray{ip}

	return args
}

// MachineType is what Proxmox VE calls a machine type.
func MachineType(name string) string {
	if name == "i440fx" {
		return "pc"
	}

	return name
}
