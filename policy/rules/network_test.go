package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/network"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func nics(of ...vm.VirtualMachineNetworkDeviceInput) func(*vm.VirtualMachineArgs) {
	return func(a *vm.VirtualMachineArgs) { a.NetworkDevices = vm.VirtualMachineNetworkDeviceArray(of) }
}

func addressed(ipv4, ipv6 string) func(*vm.VirtualMachineArgs) {
	return func(a *vm.VirtualMachineArgs) {
		a.Initialization = vm.VirtualMachineInitializationArgs{IpConfigs: vm.VirtualMachineInitializationIpConfigArray{
			vm.VirtualMachineInitializationIpConfigArgs{
				Ipv4: vm.VirtualMachineInitializationIpConfigIpv4Args{Address: pulumi.String(ipv4)},
				Ipv6: vm.VirtualMachineInitializationIpConfigIpv6Args{Address: pulumi.String(ipv6)},
			},
		}}
	}
}

func bridge(name string) vm.VirtualMachineNetworkDeviceArgs {
	return vm.VirtualMachineNetworkDeviceArgs{Bridge: pulumi.String(name)}
}

func options(args network.FirewallOptionsArgs) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		args.NodeName, args.VmId = pulumi.String("pve1"), pulumi.Int(401)
		_, err := network.NewFirewallOptions(ctx, "options", &args)

		return err
	}
}

var networkCases = []ruleCase{
	{
		rule: "bridge-firewall", name: "behind the firewall, on a private bridge, or not in use",
		program: all(
			machineOf("firewall", nics(vm.VirtualMachineNetworkDeviceArgs{Firewall: pulumi.Bool(true)})),
			machineOf("private", nics(bridge("vmbr1")), addressed("10.0.0.11/16", "fd00::11/64")),
			machineOf("tailnet", nics(bridge("vmbr1")), addressed("100.64.0.11/10", "dhcp")),
			machineOf("unused", nics(vm.VirtualMachineNetworkDeviceArgs{Enabled: pulumi.Bool(false)})),
			options(network.FirewallOptionsArgs{Enabled: pulumi.Bool(true), InputPolicy: pulumi.String("DROP")}),
		),
	},
	{
		rule: "bridge-firewall", name: "other bridges, where those are public",
		settings: `{"publicBridges": ["vmbr9", "wan*"]}`,
		program:  machineOf("vm", nics(bridge("vmbr0"), bridge("wan1"))),
		want: []string{
			"vm.networkDevices[1].firewall: must be true on a public bridge (given: bridge wan1); set it to true",
		},
	},
	{
		rule: "bridge-firewall", name: "open to a public bridge or address, or with the firewall off",
		program: all(
			machineOf("a", nics(vm.VirtualMachineNetworkDeviceArgs{})),
			machineOf("b", nics(bridge("vmbr0"))),
			machineOf("c", nics(bridge("vmbr1")), addressed("8.8.4.4/24", "dhcp")),
			machineOf("d", nics(bridge("vmbr1")), addressed("dhcp", "2001:4860::11/64")),
			options(network.FirewallOptionsArgs{Enabled: pulumi.Bool(false), InputPolicy: pulumi.String("ACCEPT")}),
		),
		want: []string{
			"options.enabled: must be true (given: false); leave the firewall on and write rules for what must pass",
			"options.inputPolicy: must be DROP or REJECT (given: ACCEPT); write rules for what must pass",
			"a.networkDevices[0].firewall: must be true on a public bridge (given: bridge vmbr0); set it to true",
			"b.networkDevices[0].firewall: must be true on a public bridge (given: bridge vmbr0); set it to true",
			"c.networkDevices[0].firewall: must be true for an interface with a public address (given: address 8.8.4.4); set " +
				"it to true",
			"d.networkDevices[0].firewall: must be true for an interface with a public address (given: address " +
				"2001:4860::11); set it to true",
		},
	},
}
