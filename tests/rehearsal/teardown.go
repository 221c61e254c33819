package rehearsal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/stacks"
)

// Destroy takes a stack away. Where nodes are held until they have left their cluster, it lets go of them first, and destroys
// with the program: one step less than an operator takes.
func Destroy(ctx context.Context, s auto.Stack, o ...optdestroy.Option) error {
	held, err := holds(ctx, s)
	if err != nil {
		return err
	}

	if held {
		if err := s.SetConfigWithOptions(ctx, stacks.Project+":lifecycle.teardown", auto.ConfigValue{Value: "true"}, &auto.ConfigOptions{Path: true}); err != nil {
			return err
		}

		o = append(o, optdestroy.RunProgram(true))
	}

	_, err = s.Destroy(ctx, o...)

	return err
}

// holds says whether anything in the stack's state must be asked before it is deleted.
func holds(ctx context.Context, s auto.Stack) (bool, error) {
	exported, err := s.Export(ctx)
	if err != nil {
		return false, err
	}

	var state apitype.DeploymentV3
	if err := json.Unmarshal(exported.Deployment, &state); err != nil {
		return false, fmt.Errorf("the state of %s cannot be read: %w", s.Name(), err)
	}

	for _, r := range state.Resources {
		if len(r.ResourceHooks[resource.BeforeDelete]) > 0 {
			return true, nil
		}
	}

	return false, nil
}
