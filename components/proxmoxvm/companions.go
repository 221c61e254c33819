package proxmoxvm

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/tokens"
)

// NewCompanions makes the companions of a VM: its high availability, and its firewall.
func NewCompanions(
	ctx *pulumi.Context, name string, n plan.Node, rules []plan.FirewallRule, machineVM *vm.VirtualMachine,
	vmid pulumi.IntOutput,
	hooks CompanionHooks, parent pulumi.ResourceOption,
) ([]pulumi.Resource, error) {
	opts := []pulumi.ResourceOption{parent}
	if hooks.All != nil {
		opts = append(opts, pulumi.ResourceHooks(hooks.All))
	}
	var companions []pulumi.Resource

	if n.HAGroup != "" || n.HA != nil {
		kept, err := newHAResource(ctx, name+tokens.HASuffix, n, vmid, hooks, parent)
		if err != nil {
			return nil, err
		}

		companions = append(companions, kept)
	}

	if rules != nil {
		closed, err := newFirewall(ctx, name, rules, machineVM, vmid, opts...)
		if err != nil {
			return nil, err
		}

		companions = append(companions, closed)
	}

	return companions, nil
}
