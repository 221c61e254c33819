package components

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/wait"
)

// ending is the last look at a cluster in a run: those that are made anew are back, and no node stays closed for a reason that
// is gone. A run that was cut off, or whose change was taken back, may have left one cordoned that nothing else happens to.
type ending struct {
	ctx     *pulumi.Context
	plan    *plan.Plan
	limiter *rollout.Limiter
	inside  inside
	say     wait.Say
}

// lookUp bounds the question which nodes are closed. A cluster that does not answer is no reason for an update to fail that has
// nothing to do with it.
const lookUp = 10 * time.Second

// after is a secret output of the cluster that is there when all resources are and nothing is left to be done. Nobody else waits
// for it.
func (e *ending) after(all []pulumi.Resource, output pulumi.StringOutput) pulumi.StringOutput {
	waited := []any{output}
	for _, r := range all {
		waited = append(waited, r.(pulumi.CustomResource).ID())
	}

	return pulumi.ToSecret(pulumi.All(waited...).ApplyT(func(all []any) (string, error) {
		return all[0].(string), e.look(hookutil.Interruptible(e.ctx.Context()))
	})).(pulumi.StringOutput)
}

func (e *ending) look(ctx context.Context) error {
	if e.ctx.DryRun() || e.plan.Teardown {
		return nil
	}

	// What runs after a change can only warn. The node may well be closed.
	if name := e.limiter.Failed(); name != "" {
		return fmt.Errorf("%s failed: the messages say why; fix it, then run 'pulumi up' again", name)
	}

	if err := e.limiter.WaitReplaced(ctx, e.plan.ReadyTimeout, e.say); err != nil {
		return err
	}

	asked, cancel := context.WithTimeout(ctx, lookUp)
	defer cancel()

	kube, err := e.inside.api(asked)
	if err != nil {
		return e.unknown(err)
	}

	nodes, err := kube.Nodes(asked)
	if err != nil {
		return e.unknown(err)
	}

	for _, n := range nodes {
		if !n.Ours || !slices.ContainsFunc(e.plan.Nodes(), func(planned plan.Node) bool { return planned.Name == n.Name }) {
			continue
		}

		if err := kube.WaitReady(ctx, n.Name, "", e.plan.ReadyTimeout, e.say); err != nil {
			return fmt.Errorf("%s takes no pods since an earlier run: %w; fix it, then run 'pulumi up' again", n.Name, err)
		}

		if err := kube.Uncordon(ctx, n.Name); err != nil {
			return fmt.Errorf("%s takes no pods since an earlier run, and cannot be uncordoned: %w", n.Name, err)
		}

		e.say(n.Name + " takes pods again")
	}

	return nil
}

func (e *ending) unknown(err error) error {
	return e.ctx.Log.Warn(fmt.Sprintf("whether an earlier run has left a node cordoned is not known: %v", err), nil)
}
