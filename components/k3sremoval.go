package components

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
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

	end, err := b.hooks.turns.take(ctx, name, plan.Worker, b.Plan.DrainTimeout+b.Plan.ReadyTimeout, say(b.ctx, b.name))
	if err != nil {
		return err
	}

	if err = b.forget(ctx, name, say(b.ctx, b.name)); err != nil {
		err = fmt.Errorf("%s is not removed: %w", name, err)
	}

	end(err)

	return err
}

// forget takes the pods off a node and the node out of Kubernetes. Every step may be done already, by a run that was cut off.
// Of one that is said to be dead, nothing is waited for.
func (b *k3sBuilder) forget(ctx context.Context, name string, say wait.Say) error {
	api, err := serversOf(b.Plan, b.servers).answering(ctx)
	if err != nil {
		return err
	}

	if api, err = api.Patient(b.Plan.SettleTimeout, say); err != nil {
		return err
	}

	forced := slices.Contains(b.Plan.ForceRemove, name)

	ready, there, err := b.answers(ctx, api, name, forced, say)
	if err != nil || !there {
		return err
	}

	switch {
	case ready:
		err = empty(ctx, api, name, b.Plan.DrainTimeout, say)
	case forced:
		// Its pods are lost with it.
		err = cordon(ctx, api, name)
	default:
		err = lifecycle.Refusal{
			Rule:   "Kubernetes hears nothing of it",
			Remedy: "bring it back, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
		}
	}

	if err != nil && !forced {
		return err
	}

	if err != nil {
		if err := b.ctx.Log.Warn(fmt.Sprintf("%s is removed although its pods did not leave it: %v", name, err), nil); err != nil {
			return err
		}
	}

	return api.DeleteNode(ctx, name)
}

// answers says whether a node is ready in Kubernetes, and whether it is there at all. A restart of K3s is no silence.
func (b *k3sBuilder) answers(ctx context.Context, api *kubeapi.Client, name string, forced bool, say wait.Say) (ready, there bool, err error) {
	patience := wait.Patience{Bound: min(b.Plan.SettleTimeout, b.Plan.NodeTimeout)}

	// The patience ends before the wait does.
	err = wait.Until(ctx, b.Plan.NodeTimeout+b.Plan.SettleTimeout, say, func(ctx context.Context) (string, error) {
		n, known, err := api.Node(ctx, name)
		ready, there = n.Ready, known

		if err != nil || !known || n.Ready || forced || patience.Over() {
			return "", err
		}

		return name + " to be ready in Kubernetes", nil
	})

	return ready, there, err
}
