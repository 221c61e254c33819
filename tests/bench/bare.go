package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// bareProject is the project of a program that does nothing but register resources.
const bareProject = "bare"

// state returns the resources of the stack, with their secrets in plain text, and how large its state is.
func (l *life) state(ctx context.Context) ([]apitype.ResourceV3, State, error) {
	exported, err := l.stack.Export(ctx)
	if err != nil {
		return nil, State{}, err
	}

	var d apitype.DeploymentV3
	if err := json.Unmarshal(exported.Deployment, &d); err != nil {
		return nil, State{}, err
	}

	size, err := l.measured.saves.size()

	return d.Resources, State{Resources: len(d.Resources), Bytes: size}, err
}

// bare measures what the engine itself takes for as many resources as a stack has, with as much in them and the same
// dependencies: nothing is asked for them, for they are the engine's own.
func (l *life) bare(ctx context.Context, resources []apitype.ResourceV3) ([]Step, error) {
	const name = "measured"

	l.measured.saves.close()

	var err error
	if l.stack, err = l.rehearsal.Backend.InlineStack(ctx, bareProject, name, registering(resources), nil,
		auto.Pulumi(l.measured)); err != nil {
		return nil, err
	}

	if err := l.watchState(bareProject, name); err != nil {
		return nil, err
	}

	l.measured.finished = func() error { return nil }
	if l.measured.profiles != "" {
		l.measured.profiles += "-alone"
	}

	var steps []Step

	for _, stage := range []Stage{Create, Destroy} {
		step, err := l.timed(ctx, stage)
		if err != nil {
			return nil, err
		}

		steps = append(steps, step)
	}

	return steps, nil
}

// registering is a program that registers the resources of a state, as components and as stashes: what has an owner of
// its own would have to be asked for it. A stash keeps its input three times, as much as the resources keep in all.
func registering(resources []apitype.ResourceV3) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		made := map[resource.URN]pulumi.Resource{}

		for _, r := range resources {
			if r.Type == resource.RootStackType || strings.HasPrefix(string(r.Type), "pulumi:providers:") {
				continue
			}

			var opts []pulumi.ResourceOption
			if parent, there := made[r.Parent]; there {
				opts = append(opts, pulumi.Parent(parent))
			}

			var after []pulumi.Resource
			for _, urn := range r.Dependencies {
				if dependency, there := made[urn]; there {
					after = append(after, dependency)
				}
			}

			var err error
			if made[r.URN], err = register(ctx, r, append(opts, pulumi.DependsOn(after))...); err != nil {
				return fmt.Errorf("%s: %w", r.URN, err)
			}
		}

		return nil
	}
}

func register(ctx *pulumi.Context, r apitype.ResourceV3, opts ...pulumi.ResourceOption) (pulumi.Resource, error) {
	if r.Custom {
		// The name says what it was: stashes of different kinds would share one.
		return pulumi.NewStash(ctx, r.URN.Name()+"-"+string(r.Type.Name()),
			&pulumi.StashArgs{Input: input(r.Inputs)}, opts...)
	}

	c := &pulumi.ResourceState{}
	if err := ctx.RegisterComponentResourceV2(string(r.Type), r.URN.Name(), input(r.Inputs).(pulumi.Map), c,
		opts...); err != nil {
		return nil, err
	}

	return c, ctx.RegisterResourceOutputs(c, input(r.Outputs).(pulumi.Map))
}

// input makes a value of an exported state one that a program may give.
func input(value any) pulumi.Input {
	switch v := value.(type) {
	case map[string]any:
		if plain, secret := v["plaintext"].(string); secret && v[resource.SigKey] == resource.SecretSig {
			var inner any
			if json.Unmarshal([]byte(plain), &inner) != nil {
				inner = plain
			}

			return pulumi.ToSecret(input(inner))
		}

		all := pulumi.Map{}
		for key, inner := range v {
			all[key] = input(inner)
		}

		return all
	case []any:
		all := make(pulumi.Array, len(v))
		for i, inner := range v {
			all[i] = input(inner)
		}

		return all
	case string:
		return pulumi.String(v)
	case float64:
		return pulumi.Float64(v)
	case bool:
		return pulumi.Bool(v)
	default:
		return nil
	}
}
