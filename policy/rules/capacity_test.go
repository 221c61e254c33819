package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/ct"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/spec"
)

// guests on pve1: two VMs of 4 cores and 8 GiB, a template, which does not count, and a container of the size that the
// provider gives it.
var guests = all(
	machineOf("a"), machineOf("b", func(a *vm.VirtualMachineArgs) {
		a.Cpu = vm.VirtualMachineCpuArgs{Cores: pulumi.Int(2), Sockets: pulumi.Int(2)}
	}),
	machineOf("base", func(a *vm.VirtualMachineArgs) { a.Template = pulumi.Bool(true) }),
	container("c"),
)

func container(name string) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		_, err := ct.NewContainer(ctx, name, &ct.ContainerArgs{NodeName: pulumi.String("pve1")})

		return err
	}
}

var capacityCases = []ruleCase{
	{
		rule: "host-capacity", name: "exactly enough",
		facts:   Facts{Room: map[string]spec.Resources{"pve1": {VCPU: 9, MemoryMiB: 16896}, "pve2": {VCPU: 1}}},
		program: guests,
	},
	{rule: "host-capacity", name: "nothing is known of the host", program: guests},
	{
		rule: "host-capacity", name: "one core and one MiB short",
		settings: `{"hosts": {"pve1": {"vcpu": 8, "memoryMiB": 16895}}}`,
		program:  guests,
		want: []string{
			"host pve1: must have the virtual CPUs that its 3 guests are promised (given: 9 promised, 8 to give); move a " +
				"guest to another host, make guests smaller, or set the host's actual capacity",
			"host pve1: must have the MiB of memory that its 3 guests are promised (given: 16896 promised, 16895 to give); " +
				"move a guest to another host, make guests smaller, or set the host's actual capacity",
		},
	},
}
