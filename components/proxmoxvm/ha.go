package proxmoxvm

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/ha"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/harules"
)

// newHAResource has the high-availability manager of Proxmox VE keep the VM running.
func newHAResource(ctx *pulumi.Context, name string, n plan.Node, vmid pulumi.IntOutput, hooks CompanionHooks,
	parent pulumi.ResourceOption,
) (pulumi.Resource, error) {
	// It is replaced with its VM.
	opts := []pulumi.ResourceOption{
		parent, pulumi.ReplaceOnChanges([]string{"resourceId"}), pulumi.DeleteBeforeReplace(true),
	}
	args := &ha.HAResourceArgs{
		// It depends on the VM: it is there after it and gone before it.
		ResourceId: pulumi.Sprintf("vm:%d", vmid), State: pulumi.String("started"), Type: pulumi.String("vm"),
	}

	switch {
	case hooks.HARules:
		// A group has become a rule, and is no longer written. The state of a stack from before may still have it.
		opts = append(opts, pulumi.IgnoreChanges([]string{"group"}))
	case n.HAGroup != "":
		args.Group = pulumi.String(n.HAGroup)
	}

	mark := 0
	if hooks.Mark != nil {
		mark = hooks.Mark(n)
	}

	if comment := harules.Comment(n, mark); comment != "" {
		args.Comment = pulumi.String(comment)
	}

	binding := pulumi.ResourceHookBinding{}
	if hooks.All != nil {
		binding = *hooks.All
	}

	// Rules that the node no longer has are removed by the same hook.
	if hooks.ApplyRules != nil && (harules.HasRules(n) || hooks.HARules) {
		binding.AfterCreate = []*pulumi.ResourceHook{hooks.ApplyRules}
		binding.AfterUpdate = []*pulumi.ResourceHook{hooks.ApplyRules}
	}

	if hooks.All != nil {
		opts = append(opts, pulumi.ResourceHooks(&binding))
	}

	return ha.NewHAResource(ctx, name, args, opts...)
}
