package components

import (
	"context"
	"errors"
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/tokens"
)

// withRelease adds to the outputs of a cluster that an update with lifecycle.teardown has released it.
func withRelease(outputs pulumi.Map, p *plan.Plan) pulumi.Map {
	if p.Teardown {
		outputs[vmidentity.ReleasedOutput] = pulumi.String(p.Cluster)
	}

	return outputs
}

// outputsOf are the outputs of a component: its fields with a pulumi tag, which is their name.
func outputsOf(component pulumi.ComponentResource) pulumi.Map {
	outputs := pulumi.Map{}
	value := reflect.Indirect(reflect.ValueOf(component))

	for i := range value.NumField() {
		if name, ok := value.Type().Field(i).Tag.Lookup("pulumi"); ok {
			outputs[name] = value.Field(i).Interface().(pulumi.Input)
		}
	}

	return outputs
}

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

// newSecretStash keeps a secret text in the state: the first one.
func newSecretStash(ctx *pulumi.Context, name string, text pulumi.StringInput, opts ...pulumi.ResourceOption,
) (*pulumi.Stash, error) {
	return pulumi.NewStash(ctx, name, &pulumi.StashArgs{Input: pulumi.ToSecret(text)}, append(opts,
		pulumi.IgnoreChanges([]string{"input"}), pulumi.AdditionalSecretOutputs([]string{"input", "output"}))...)
}

// stashedText is the text that a stash keeps.
func stashedText(s *pulumi.Stash) pulumi.StringOutput {
	return s.Output.ApplyT(func(value any) (string, error) {
		text, ok := value.(string)
		if !ok {
			return "", errors.New("the state has a value that is not a string")
		}

		return text, nil
	}).(pulumi.StringOutput)
}

// newEmptyRecord records that an empty cluster was accepted: lifecycle.acceptEmptyCluster counts once. The record is
// there as long as the key is set.
func newEmptyRecord(ctx *pulumi.Context, name string, opts ...pulumi.ResourceOption) (*pulumi.Stash, error) {
	return pulumi.NewStash(ctx, name+tokens.EmptySuffix,
		&pulumi.StashArgs{Input: pulumi.String("an empty cluster was accepted")}, opts...)
}
