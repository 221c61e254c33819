package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"
	"google.golang.org/protobuf/types/known/structpb"

	"talos-proxmox/components/spec"
	"talos-proxmox/stacks"
	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/provider/about"
	"talos-proxmox/stacks/schema"
)

// cluster is the component as the engine sees it: the parent of all that stacks.Deploy makes.
type cluster struct{ pulumi.ResourceState }

// inputs are those of a cluster, as config.Decode reads them.
type inputs struct {
	values  map[string]string
	unknown []string // keys whose values only the update knows
}

// readInputs reads the inputs of a cluster.
func readInputs(given *structpb.Struct) (inputs, error) {
	properties, err := plugin.UnmarshalProperties(given, plugin.MarshalOptions{KeepUnknowns: true, KeepResources: true})
	if err != nil {
		return inputs{}, err
	}

	types, err := schema.KeyTypes()
	if err != nil {
		return inputs{}, err
	}

	in := inputs{values: map[string]string{}}

	for _, key := range slices.Sorted(maps.Keys(properties)) {
		name, value := string(key), properties[key]

		switch {
		case value.IsNull():
		case value.ContainsUnknowns():
			in.unknown = append(in.unknown, name)
		default:
			if in.values[name], err = text(value, types[name] == "string"); err != nil {
				return inputs{}, err
			}
		}
	}

	return in, nil
}

// text is a value as Pulumi keeps configuration: text as it is, anything else as JSON.
func text(value resource.PropertyValue, plain bool) (string, error) {
	if plain && value.IsString() {
		return value.StringValue(), nil
	}

	b, err := json.Marshal(value.Mappable())

	return string(b), err
}

// newCluster registers the component and the cluster below it. Nothing is registered when the configuration is wrong;
// the error holds all problems. The configuration decides which resources there are, so a preview must know all of it
// but the secrets that are only passed on.
func newCluster(ctx *pulumi.Context, name string, in inputs, props pulumi.Map, options pulumi.ResourceOption,
) (*provider.ConstructResult, error) {
	if err := stacks.RefuseProtect(options); err != nil {
		return nil, err
	}

	for _, key := range config.SecretKeys {
		if value, given := props[key]; given {
			props[key] = pulumi.ToSecret(value)
		}
	}

	var (
		late     config.Secrets
		problems spec.Problems
	)

	for _, key := range in.unknown {
		value := props[key].(pulumi.Output).ApplyT(func(v any) string { return v.(string) }).(pulumi.StringOutput)
		if !late.Set(key, value) {
			problems.Add(key, "must be known in a preview: it decides which resources there are", "",
				"give a value that depends on no resource, such as one of the configuration of the stack")
		}
	}

	if err := problems.Err(); err != nil {
		return nil, err
	}

	// The engine starts plugins in the directory of the program: paths of the configuration begin there.
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}

	settings, err := config.Decode(in.values, late, dir)
	if err != nil {
		return nil, err
	}

	c := &cluster{}
	if err := ctx.RegisterComponentResourceV2(about.ClusterType, name, props, c, options); err != nil {
		return nil, err
	}

	deployment, err := stacks.Deploy(ctx, settings, pulumi.Parent(c))
	if err != nil {
		return nil, err
	}

	deployment.WriteFiles(ctx, dir)

	// They are commands about outputs of a stack, which the program exports under names of its own.
	delete(deployment.Outputs, contract.OutputNextSteps)

	if err := ctx.RegisterResourceOutputs(c, deployment.Outputs); err != nil {
		return nil, err
	}

	return &provider.ConstructResult{URN: c.URN(), State: deployment.Outputs}, nil
}
