// Package proxmoxvm makes the VM of a node: its arguments, image, firewall, high availability and address. Package
// vmidentity tells which VM that is.
package proxmoxvm

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

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

	markUpdate(v, args.State.Mark)

	addHardware(v, n, args.Mapping)
	addBoot(v, args)

	if args.Hooks != nil {
		opts = append(opts, pulumi.ResourceHooks(args.Hooks))
	}

	machineVM, err := vm.NewVirtualMachine(ctx, name, v, append(opts,
		// A VMID, a name and a MAC cannot exist twice.
		pulumi.DeleteBeforeReplace(true),
		pulumi.IgnoreChanges(ignoredChanges(args)),
		// The provider would stop a protected VM before Proxmox VE refuses to remove it; Pulumi refuses in the preview.
		pulumi.Protect(n.Protection),
		pulumi.DependsOn(args.After))...)
	if err != nil {
		return nil, err
	}

	return machineVM, nil
}

// ignoredChanges are the properties whose changes are not applied to an existing VM.
func ignoredChanges(args *Args) []string {
	n := args.Node
	paths := slices.Concat(creationOnly(n), readBackDifferently(n), appliedByHooks(args))

	if args.State.Running {
		// Where the provider would start the VM, it takes these for unknown.
		paths = append(paths, "started", "ipv4Addresses", "ipv6Addresses", "networkInterfaceNames")
	}

	if !args.Rebalance {
		// The host is where the VM was created; an operator may have migrated it since.
		paths = append(paths, "nodeName")
	}

	slices.Sort(paths)

	return paths
}

// creationOnly are the properties that are used when a VM is created, and never again.
func creationOnly(n plan.Node) []string {
	// smbios is the identity of this very machine: it changes only when the VM is recreated.
	paths := []string{"clone", "description", "smbios", "initialization", "efiDisk", "tpmState"}

	if n.Template == "" {
		// An ISO file that has been ejected stays out, and a drive is neither added nor removed later.
		return append(paths, "cdrom", "disks[0].fileId")
	}

	// A clone has these from its template, and the provider does not apply them to it.
	paths = append(paths, "bios", "bootOrders", "machine", "scsiHardware")
	for _, option := range templateOptions {
		paths = append(paths, "disks[0]."+option)
	}

	return paths
}

// readBackDifferently are the properties that the provider would show as changed in every preview.
func readBackDifferently(n plan.Node) []string {
	var paths []string
	for i := range n.Disks {
		paths = append(paths, fmt.Sprintf("disks[%d].speed", i))
	}

	return paths
}

// appliedByHooks are the properties that hooks change on a running VM, since the provider would restart it for them.
func appliedByHooks(args *Args) []string {
	var paths []string
	if args.State.Mark == 0 {
		paths = append(paths, updateMark) // The mark of the last such update stays.
	}

	if args.recreated() {
		return paths
	}

	paths = append(paths, "cpu.units")
	for _, i := range args.State.Disks {
		paths = append(paths, fmt.Sprintf("disks[%d].size", i))
	}

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
		var startup vm.VirtualMachineStartupArgs

		if s.Order != nil {
			startup.Order = pulumi.Int(*s.Order)
		}

		if s.UpDelaySeconds > 0 {
			startup.UpDelay = pulumi.Int(s.UpDelaySeconds)
		}

		// A host stops a VM with a delay of 0 without a shutdown.
		if s.DownDelaySeconds > 0 {
			startup.DownDelay = pulumi.Int(s.DownDelaySeconds)
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
