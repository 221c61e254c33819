package components

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/rollout"
)

// finally is an output that is known when the final check has passed, after all resources. A preview waits for none: it
// does not know those that are new. The check is in an ApplyT, not in a hook after the last resource: that runs only
// where the resource has a step, and this in each update.
func finally(ctx *pulumi.Context, all []pulumi.Resource, output pulumi.StringOutput, check rollout.FinalCheck,
) pulumi.StringOutput {
	if ctx.DryRun() {
		all = nil
	}

	return outputAfter(ctx, all, output, check.Run)
}

// outputAfter is an output that is known when all resources are done and a check has passed. Nothing else waits for it.
func outputAfter(
	ctx *pulumi.Context, all []pulumi.Resource, output pulumi.StringOutput, check func(context.Context) error,
) pulumi.StringOutput {
	waited := []any{output}
	for _, r := range all {
		waited = append(waited, r.(pulumi.CustomResource).ID())
	}

	return pulumi.ToSecret(pulumi.All(waited...).ApplyT(func(all []any) (string, error) {
		return all[0].(string), check(hookutil.Interruptible(ctx.Context()))
	})).(pulumi.StringOutput)
}
