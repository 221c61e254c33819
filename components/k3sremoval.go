package components

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// leaves runs before an agent of K3s is no longer counted as one, and its VM deleted: its pods move elsewhere, and Kubernetes
// forgets it. One that stays in the plan and is not to be made anew goes without: its VM is gone already, or the whole cluster
// is being destroyed.
func (b *k3sBuilder) leaves(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	joined := unwrap(args.OldInputs["input"])
	if !joined.IsObject() {
		return nil
	}

	name := text(joined.ObjectValue(), "name")
	planned := slices.ContainsFunc(b.Plan.Nodes(), func(n plan.Node) bool { return n.Name == name })

	if name == "" || planned && !slices.Contains(b.Plan.Replace, name) {
		return nil
	}

	err := b.forget(ctx, name, say(b.ctx, b.name))

	switch {
	case err == nil:
		return nil
	case slices.Contains(b.Plan.ForceRemove, name):
		return b.ctx.Log.Warn(fmt.Sprintf("%s is removed although its pods did not leave it: %v", name, err), nil)
	default:
		return fmt.Errorf("%s is not removed: %w; to remove it without asking, name it in lifecycle.forceRemove", name, err)
	}
}

// forget takes the pods off a node and the node out of Kubernetes, through the first server that answers.
func (b *k3sBuilder) forget(ctx context.Context, name string, say wait.Say) error {
	var last error

	for _, server := range b.Plan.ControlPlanes() {
		address := b.servers.of(server.Name)
		if address == "" {
			continue
		}

		api, err := kubeapi.New([]byte(b.servers.of("")), address)
		if err != nil {
			return err
		}

		if _, there, err := api.Node(ctx, name); err != nil {
			last = fmt.Errorf("the Kubernetes API of %s does not answer: %w", server.Name, wait.Reason(err))

			continue
		} else if !there {
			return nil
		}

		if err := api.Cordon(ctx, name); err != nil {
			return err
		}

		if err := api.Drain(ctx, name, b.Plan.DrainTimeout, say); err != nil {
			return err
		}

		return api.DeleteNode(ctx, name)
	}

	return last
}
