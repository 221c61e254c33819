package rehearsal

import (
	"context"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"

	"talos-proxmox/stacks"
)

// Unprotect takes the protection of VMs out of the stack's configuration, as an operator has to before they are destroyed,
// and returns the keys that it set. They have an effect with the next update.
func (r *Rehearsal) Unprotect(ctx context.Context) ([]string, error) {
	path := &auto.ConfigOptions{Path: true}

	var done []string

	for _, pool := range r.Plan.Pools {
		found := false

		for _, n := range pool.Nodes {
			if !n.Protection {
				continue
			}

			found = true
			own := fmt.Sprintf("%s:pools.%s.nodes.%d.protection", stacks.Project, pool.Name, n.Ordinal)

			// Only a node that states it itself needs to state the opposite.
			if _, err := r.Stack.GetConfigWithOptions(ctx, own, path); err == nil {
				done = append(done, own)
			}
		}

		if found {
			done = append(done, fmt.Sprintf("%s:pools.%s.protection", stacks.Project, pool.Name))
		}
	}

	for _, key := range done {
		if err := r.Stack.SetConfigWithOptions(ctx, key, auto.ConfigValue{Value: "false"}, path); err != nil {
			return nil, err
		}
	}

	return done, nil
}
