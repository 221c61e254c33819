package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func withGPU(floating int, machine string) func(*vm.VirtualMachineArgs) {
	return func(a *vm.VirtualMachineArgs) {
		a.Hostpcis = vm.VirtualMachineHostpciArray{vm.VirtualMachineHostpciArgs{
			Device: pulumi.String("hostpci0"), Mapping: pulumi.String("gpu"),
		}}
		a.Memory = vm.VirtualMachineMemoryArgs{Dedicated: pulumi.Int(16384), Floating: pulumi.Int(floating)}

		if machine != "" {
			a.Machine = pulumi.String(machine)
		}
	}
}

func cloned(a *vm.VirtualMachineArgs) { a.Clone = vm.VirtualMachineCloneArgs{VmId: pulumi.Int(9000)} }

var gpuCases = []ruleCase{
	{
		rule: "gpu-without-ballooning", name: "fixed memory, or no device",
		program: all(machineOf("gpu", withGPU(0, "q35")), machineOf("other", func(a *vm.VirtualMachineArgs) {
			a.Memory = vm.VirtualMachineMemoryArgs{Floating: pulumi.Int(1024)}
		})),
	},
	{
		rule: "gpu-without-ballooning", name: "memory that the host may take back",
		program: machineOf("gpu", withGPU(8192, "q35")),
		want:    []string{"gpu.memory.floating: must be 0 with hostpcis (given: 8192); leave it out"},
	},
	{
		rule: "gpu-machine-type", name: "q35, the machine of a template, or no device",
		program: all(machineOf("gpu", withGPU(0, "pc-q35-9.0")), machineOf("clone", withGPU(0, ""), cloned),
			machineOf("other")),
	},
	{
		rule: "gpu-machine-type", name: "i440fx, stated or not",
		program: all(machineOf("a", withGPU(0, "")), machineOf("b", withGPU(0, "pc")),
			machineOf("c", withGPU(0, "pc"), cloned)),
		want: []string{
			"a.machine: must be q35 with hostpcis (given: none, which is i440fx); set it to q35",
			"b.machine: must be q35 with hostpcis (given: pc); set it to q35",
			"c.machine: must be q35 with hostpcis (given: pc); set it to q35",
		},
	},
}
