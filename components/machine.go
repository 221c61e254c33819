package components

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// machineInputs are what the component of a machine shows of it, whatever runs in it.
func machineInputs(n plan.Node) pulumi.Map {
	return pulumi.Map{
		"name": pulumi.String(n.Name), "pool": pulumi.String(n.Pool), "role": pulumi.String(n.Role),
		"vmid": pulumi.Int(n.VMID), "cores": pulumi.Int(n.Cores), "memoryMiB": pulumi.Int(n.MemoryMiB),
		"diskGiB": pulumi.Int(n.Disks[0].SizeGiB),
	}
}

// newBeside makes what a VM has beside it: its place in a high-availability group, and its firewall.
func newBeside(
	ctx *pulumi.Context, name string, n plan.Node, rules []plan.FirewallRule, machineVM *vm.VirtualMachine, vmid pulumi.IntOutput,
	hooks *pulumi.ResourceHookBinding, parent pulumi.ResourceOption,
) ([]pulumi.Resource, error) {
	opts := []pulumi.ResourceOption{parent}
	if hooks != nil {
		opts = append(opts, pulumi.ResourceHooks(hooks))
	}
	var beside []pulumi.Resource

	if n.HAGroup != "" {
		kept, err := newHAResource(ctx, name+"-ha", n, vmid, opts...)
		if err != nil {
			return nil, err
		}

		beside = append(beside, kept)
	}

	if rules != nil {
		closed, err := newFirewall(ctx, name, rules, machineVM, vmid, opts...)
		if err != nil {
			return nil, err
		}

		beside = append(beside, closed)
	}

	return beside, nil
}

// addressOf a machine is stated, or found, or not known.
func addressOf(ctx *pulumi.Context, n plan.Node, d *Discovery, machineVM *vm.VirtualMachine) pulumi.StringPtrOutput {
	switch {
	case n.Address.IsValid():
		return pulumi.StringPtr(n.Address.String()).ToStringPtrOutput()
	case d != nil:
		return d.find(ctx, n, machineVM)
	default:
		return noAddress()
	}
}

func noAddress() pulumi.StringPtrOutput {
	return pulumi.String("").ToStringOutput().ApplyT(func(string) *string { return nil }).(pulumi.StringPtrOutput)
}
