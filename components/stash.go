package components

import (
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/tokens"
)

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
