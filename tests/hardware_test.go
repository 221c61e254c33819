package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/ha"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/hardware/mapping"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/network"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/world"
)

// hardware is a stack of what the provider itself can make of a VM: one with all that a VM can have, one that high
// availability looks after, a mapped device, and a firewall. Its shape is what changes between runs.
func hardware(l *lab.Lab, cores int, sources ...string) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		provider, err := proxmoxve.NewProvider(ctx, "proxmox", &proxmoxve.ProviderArgs{
			Endpoint: pulumi.String(l.Endpoint()), Insecure: pulumi.Bool(true),
			ApiToken: pulumi.String(l.Credentials().TokenID + "=" + l.Credentials().TokenSecret),
			Ssh:      proxmoxve.ProviderSshArgs{Username: pulumi.String("root"), Agent: pulumi.Bool(false)},
		})
		if err != nil {
			return err
		}

		by := pulumi.Provider(provider)

		gpu, err := mapping.NewPci(ctx, "gpu", &mapping.PciArgs{
			Name: pulumi.String("gpu"), Comment: pulumi.String("a card"), Maps: mapping.PciMapTypeArray{mapping.PciMapTypeArgs{
				Id: pulumi.String("10de:2204"), SubsystemId: pulumi.String("10de:147d"), IommuGroup: pulumi.Int(1),
				Node: pulumi.String("pve"), Path: pulumi.String("0000:01:00"),
			}},
		}, by)
		if err != nil {
			return err
		}

		full, err := vm.NewVirtualMachine(ctx, "full", fullVM(gpu.Name, cores), by,
			pulumi.IgnoreChanges([]string{"cdrom", "disks[0].speed", "disks[1].speed", "disks[2].speed"}))
		if err != nil {
			return err
		}

		if err := addFirewall(ctx, full, sources, by); err != nil {
			return err
		}

		kept, err := vm.NewVirtualMachine(ctx, "kept", &vm.VirtualMachineArgs{
			NodeName: pulumi.String("pve"), VmId: pulumi.Int(502), Name: pulumi.String("kept"), StopOnDestroy: pulumi.Bool(true),
			Cdrom: vm.VirtualMachineCdromArgs{FileId: pulumi.String("none")},
			// An absent list becomes one with a null in it, which the provider then refuses.
			SerialDevices: vm.VirtualMachineSerialDeviceArray{}, NetworkDevices: vm.VirtualMachineNetworkDeviceArray{},
			Disks: vm.VirtualMachineDiskArray{vm.VirtualMachineDiskArgs{
				Interface: pulumi.String("scsi0"), DatastoreId: pulumi.String("tank"), Size: pulumi.Int(1),
				FileFormat: pulumi.String("raw"),
			}},
			// Provider 0.69.1 makes no empty drive.
		}, by, pulumi.IgnoreChanges([]string{"cdrom", "disks[0].speed"}))
		if err != nil {
			return err
		}

		_, err = ha.NewHAResource(ctx, "kept", &ha.HAResourceArgs{
			ResourceId: pulumi.Sprintf("vm:%d", kept.VmId), Type: pulumi.String("vm"), State: pulumi.String("started"),
			Group:   pulumi.String("racks"),
			Comment: pulumi.String(fmt.Sprintf("next to %d cores", cores)), MaxRestart: pulumi.Int(2),
		}, by)

		return err
	}
}

// fullVM is a VM with one of everything.
func fullVM(gpu pulumi.StringInput, cores int) *vm.VirtualMachineArgs {
	disk := func(iface, datastore, format, cache, aio string, size int) vm.VirtualMachineDiskArgs {
		return vm.VirtualMachineDiskArgs{
			Interface: pulumi.String(iface), DatastoreId: pulumi.String(datastore), Size: pulumi.Int(size),
			FileFormat: pulumi.String(format),
			Cache:      pulumi.String(cache), Aio: pulumi.String(aio), Discard: pulumi.String("on"), Ssd: pulumi.Bool(true),
			Iothread: pulumi.Bool(true),
			Backup:   pulumi.Bool(false), Replicate: pulumi.Bool(false),
		}
	}

	return &vm.VirtualMachineArgs{
		NodeName: pulumi.String("pve"), VmId: pulumi.Int(501), Name: pulumi.String("full"),
		Description: pulumi.String("one of everything"),
		Tags:        pulumi.ToStringArray([]string{"atlas", "talos"}), PoolId: pulumi.String("nodes"),
		Machine: pulumi.String("q35"), Bios: pulumi.String("ovmf"), ScsiHardware: pulumi.String("virtio-scsi-single"),
		Cpu: vm.VirtualMachineCpuArgs{
			Cores: pulumi.Int(cores), Type: pulumi.String("x86-64-v2-AES"),
			Numa: pulumi.Bool(true),
		},
		Memory: vm.VirtualMachineMemoryArgs{Dedicated: pulumi.Int(4096), Floating: pulumi.Int(2048)},
		EfiDisk: vm.VirtualMachineEfiDiskArgs{
			DatastoreId: pulumi.String("tank"), FileFormat: pulumi.String("raw"), Type: pulumi.String("4m"),
			PreEnrolledKeys: pulumi.Bool(false),
		},
		TpmState: vm.VirtualMachineTpmStateArgs{DatastoreId: pulumi.String("tank"), Version: pulumi.String("v2.0")},
		Disks: vm.VirtualMachineDiskArray{
			disk("scsi0", "tank", "raw", "none", "io_uring", 10), disk("scsi1", "zfs", "raw", "writeback", "native", 4),
			disk("scsi2", "files", "qcow2", "directsync", "threads", 2),
		},
		NetworkDevices: vm.VirtualMachineNetworkDeviceArray{
			vm.VirtualMachineNetworkDeviceArgs{
				Bridge: pulumi.String("vmbr0"), MacAddress: pulumi.String("BC:24:11:00:00:01"), VlanId: pulumi.Int(30),
				Mtu:      pulumi.Int(1400),
				Firewall: pulumi.Bool(true),
			},
			vm.VirtualMachineNetworkDeviceArgs{
				Bridge: pulumi.String("vmbr1"), MacAddress: pulumi.String("BC:24:11:00:00:02"),
				Mtu: pulumi.Int(1),
			},
		},
		Hostpcis: vm.VirtualMachineHostpciArray{vm.VirtualMachineHostpciArgs{
			Device: pulumi.String("hostpci0"), Mapping: pulumi.StringPtrInput(gpu.ToStringOutput().ToStringPtrOutput()),
			Pcie: pulumi.Bool(true), Rombar: pulumi.Bool(true), Xvga: pulumi.Bool(false),
		}},
		Smbios:        vm.VirtualMachineSmbiosArgs{Uuid: pulumi.String("6b1e9c32-8f6e-4a51-9f0d-0c1d2e3f4a5b")},
		Startup:       vm.VirtualMachineStartupArgs{Order: pulumi.Int(3), UpDelay: pulumi.Int(60), DownDelay: pulumi.Int(30)},
		SerialDevices: vm.VirtualMachineSerialDeviceArray{vm.VirtualMachineSerialDeviceArgs{Device: pulumi.String("socket")}},
		// Provider 0.69.1 makes no drive that is not enabled.
		Cdrom: vm.VirtualMachineCdromArgs{
			Enabled: pulumi.Bool(true), FileId: pulumi.String("local:iso/talos.iso"), Interface: pulumi.String("ide2"),
		},
		BootOrders:      pulumi.ToStringArray([]string{"scsi0", "ide2"}),
		OperatingSystem: vm.VirtualMachineOperatingSystemArgs{Type: pulumi.String("l26")},
		OnBoot:          pulumi.Bool(true), Protection: pulumi.Bool(false), StopOnDestroy: pulumi.Bool(true),
	}
}

// addFirewall closes a VM but for the sources that are given, one rule each, and what its security group lets pass.
func addFirewall(ctx *pulumi.Context, machine *vm.VirtualMachine, sources []string, by pulumi.ResourceOption) error {
	group, err := network.NewFirewallSecurityGroup(ctx, "nodes", &network.FirewallSecurityGroupArgs{
		Name: pulumi.String("nodes"), Comment: pulumi.String("all nodes"), Rules: network.FirewallSecurityGroupRuleArray{
			network.FirewallSecurityGroupRuleArgs{
				Type: pulumi.String("in"), Action: pulumi.String("ACCEPT"),
				Macro: pulumi.String("Ping"),
			},
			network.FirewallSecurityGroupRuleArgs{
				Type: pulumi.String("in"), Action: pulumi.String("ACCEPT"), Proto: pulumi.String("tcp"),
				Dport: pulumi.String("10250"), Log: pulumi.String("info"),
			},
		},
	}, by)
	if err != nil {
		return err
	}

	_, err = network.NewFirewallOptions(ctx, "full", &network.FirewallOptionsArgs{
		NodeName: pulumi.String("pve"), VmId: machine.VmId.ToIntPtrOutput(), Enabled: pulumi.Bool(true),
		Dhcp: pulumi.Bool(true), Ndp: pulumi.Bool(true),
		Macfilter: pulumi.Bool(true), InputPolicy: pulumi.String("DROP"), OutputPolicy: pulumi.String("ACCEPT"),
		LogLevelIn: pulumi.String("info"), LogLevelOut: pulumi.String("nolog"),
	}, by)
	if err != nil {
		return err
	}

	rules := network.FirewallRulesRuleArray{
		network.FirewallRulesRuleArgs{
			SecurityGroup: group.Name.ToStringPtrOutput(), Iface: pulumi.String("net0"),
			Comment: pulumi.String("nodes"),
		},
	}

	for _, source := range sources {
		rules = append(rules, network.FirewallRulesRuleArgs{
			Type: pulumi.String("in"), Action: pulumi.String("ACCEPT"), Proto: pulumi.String("tcp"),
			Dport:  pulumi.String("6443,50000:50001"),
			Source: pulumi.String(source), Comment: pulumi.String("API"), Log: pulumi.String("nolog"),
		})
	}

	_, err = network.NewFirewallRules(ctx, "full", &network.FirewallRulesArgs{
		NodeName: pulumi.String("pve"), VmId: machine.VmId.ToIntPtrOutput(), Rules: rules,
	}, by, pulumi.DeleteBeforeReplace(true)) // rules are deleted by their positions, which those that replace them would have

	return err
}

// TestHardware makes all that a VM can be with the provider itself, and holds that the lab takes it, keeps it and reads
// it back without a difference.
func TestHardware(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	l, err := lab.Start(t.Context(), lab.Config{
		Version: world.Version8,
		Hosts: []lab.Host{{
			Name: "pve", Bridges: []string{"vmbr0", "vmbr1"}, PCI: world.GPU("0000:01:00", 1),
			Storages: []lab.Storage{
				{Name: "tank", Type: "lvmthin", Content: []string{"images"}},
				{Name: "zfs", Type: "zfspool", Content: []string{"images"}},
				{Name: "files", Type: "dir", Content: []string{"images"}},
				{Name: "local", Type: "dir", Content: []string{"iso"}},
			},
		}},
		Pools: []string{"nodes"}, HAGroups: []lab.HAGroup{{Name: "racks", Nodes: []string{"pve"}}},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, l.Journal().Unknown())
	})
	require.NoError(t, l.World().AddFile("pve", "local", "iso", "talos.iso", 100*world.MiB, nil))

	before := l.World().Snapshot()

	backend, err := e.NewBackend(t.TempDir())
	require.NoError(t, err)

	open := func(cores int, sources ...string) auto.Stack {
		s, err := backend.InlineStack(t.Context(), "hardware", "dev", hardware(l, cores, sources...), auto.ConfigMap{})
		require.NoError(t, err)

		return s
	}

	firewall := func() []world.FirewallRule {
		rules, _, err := l.World().FirewallRules(world.FirewallScope{VMID: 501})
		require.NoError(t, err)

		return rules
	}

	api := func(source string) world.FirewallRule {
		return world.FirewallRule{
			"type": "in", "action": "ACCEPT", "enable": "1", "proto": "tcp", "dport": "6443,50000:50001", "source": source,
			"comment": "API", "log": "nolog",
			"ipversion": "4",
		}
	}
	nodes := world.FirewallRule{"type": "group", "action": "nodes", "enable": "1", "iface": "net0", "comment": "nodes"}

	s := open(2, "10.0.0.0/16")
	up(t, s)
	require.Equal(t, []world.FirewallRule{nodes, api("10.0.0.0/16")}, firewall())

	group, _, err := l.World().FirewallRules(world.FirewallScope{Group: "nodes"})
	require.NoError(t, err)
	require.Len(t, group, 2)
	require.Equal(t, "Ping", group[0]["macro"])

	full, _ := l.World().Snapshot().VM("full")
	require.True(t, full.Running)
	require.Equal(t, "nodes", full.Pool)

	requireSettled(t, s)

	s = open(4, "10.0.0.0/16", "10.1.0.0/16")
	up(t, s)

	// The provider looks at the VM while Proxmox VE restarts it, and notes that it is off.
	require.Eventually(t, func() bool { v, err := l.World().VM("pve", 501); return err == nil && v.Running }, wait,
		50*time.Millisecond)

	_, err = s.Refresh(t.Context())
	require.NoError(t, err)

	config, err := l.World().Config("pve", 501, true)
	require.NoError(t, err)
	require.Equal(t, 4, config["cores"])
	require.Equal(t, "mapping=gpu,pcie=1,rombar=1,x-vga=0", config["hostpci0"])
	require.Equal(t, []world.FirewallRule{nodes, api("10.0.0.0/16"), api("10.1.0.0/16")}, firewall())
	requireSettled(t, s)

	destroy(t, s)
	require.Equal(t, before, l.World().Snapshot())
}
