package rehearsal

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/tests/engine"
)

// Destroy takes a stack away. Where nodes are held until they have left their cluster, it lets go of them first, and
// destroys with the program: one step less than an operator takes. What is protected takes the operator's two.
func Destroy(ctx context.Context, s auto.Stack, o ...optdestroy.Option) error {
	held, protected, err := holds(ctx, s)
	if err != nil {
		return err
	}

	if held || protected {
		if err := Set(ctx, s, "lifecycle.teardown", "true"); err != nil {
			return err
		}

		o = append(o, optdestroy.RunProgram(true))
	}

	if protected {
		if _, err := s.Up(ctx); err != nil {
			return err
		}
	}

	_, err = s.Destroy(ctx, o...)

	return err
}

// holds says whether anything in the stack's state must be asked before it is deleted, and whether anything is
// protected.
func holds(ctx context.Context, s auto.Stack) (held, protected bool, err error) {
	state, err := engine.State(ctx, s)
	if err != nil {
		return false, false, err
	}

	for _, r := range state.Resources {
		held = held || len(r.ResourceHooks[resource.BeforeDelete]) > 0
		protected = protected || r.Protect
	}

	return held, protected, nil
}
