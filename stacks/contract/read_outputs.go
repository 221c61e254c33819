package contract

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Outputs is what a stack of this program offers to other stacks.
type Outputs struct {
	Contract Contract
	// Kubeconfig and Talosconfig are secret.
	Kubeconfig, Talosconfig pulumi.StringOutput
}

// ReadOutputs reads the outputs of another stack. The contract is there as plain values, so that it may shape the
// reading program's resources. It is an error when the stack has not been deployed.
func ReadOutputs(ref *pulumi.StackReference) (*Outputs, error) { return ReadOutputsOf(ref, "") }

// ReadOutputsOf reads the outputs of one cluster of several, which their stack exports under names with a prefix each:
// with "home-", home-kubeconfig and so on.
func ReadOutputsOf(ref *pulumi.StackReference, prefix string) (*Outputs, error) {
	name := prefix + OutputContract

	details, err := ref.GetOutputDetails(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}

	whole, err := decode(details.Value, name)
	if err != nil {
		return nil, err
	}

	secret := func(name string) pulumi.StringOutput {
		return pulumi.ToSecret(ref.GetStringOutput(pulumi.String(prefix + name))).(pulumi.StringOutput)
	}

	return &Outputs{Contract: *whole, Kubeconfig: secret(OutputKubeconfig), Talosconfig: secret(OutputTalosconfig)}, nil
}
