package proxmoxvm

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/ha"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// NewCompanions makes the companions of a VM: its place in a high-availability group, and its firewall.
func NewCompanions(
	ctx *pulumi.Context, name string, n plan.Node, rules []plan.FirewallRule, machineVM *vm.VirtualMachine,
	vmid pulumi.IntOutput,
	hooks *pulumi.ResourceHookBinding, parent pulumi.ResourceOption,
) ([]pulumi.Resource, error) {
	opts := []pulumi.ResourceOption{parent}
	if hooks != nil {
		opts = append(opts, pulumi.ResourceHooks(hooks))
	}
	var companions []pulumi.Resource

	if n.HAGroup != "" {
		kept, err := newHAResource(ctx, name+"-ha", n, vmid, opts...)
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

// newHAResource has the high-availability manager of Proxmox VE keep the VM running.
func newHAResource(ctx *pulumi.Context, name string, n plan.Node, vmid pulumi.IntOutput,
	opts ...pulumi.ResourceOption,
) (pulumi.Resource, error) {
	// It is replaced with its VM.
	opts = append(opts, pulumi.ReplaceOnChanges([]string{"resourceId"}), pulumi.DeleteBeforeReplace(true))

	return ha.NewHAResource(ctx, name, &ha.HAResourceArgs{
		// It depends on the VM: it is there after it and gone before it.
		ResourceId: pulumi.Sprintf("vm:%d", vmid), Group: pulumi.String(n.HAGroup), State: pulumi.String("started"),
		Type: pulumi.String("vm"),
	}, opts...)
}
