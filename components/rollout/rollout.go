// Package rollout takes nodes down one after the other, without harm to what runs on them. Rollout.Disrupt lists the
// steps.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// Rollout is one kind of change, to any number of nodes.
type Rollout struct {
	Plan *plan.Plan
	// Limiter is shared by all that takes nodes down.
	Limiter *Limiter
	// TurnTimeout is the longest time that another node may be unavailable.
	TurnTimeout time.Duration
	Progress    wait.Reporter
	// canaries let one worker of a pool go first; nil: none does.
	canaries *Canaries
}

// New returns a Rollout of the nodes of a plan.
func New(p *plan.Plan, l *Limiter, progress wait.Reporter) *Rollout {
	r := &Rollout{Plan: p, Limiter: l, TurnTimeout: turnTimeout(p), Progress: progress}
	if p.Canary {
		r.canaries = NewCanaries()
	}

	return r
}

// turnTimeout is the longest time that a node may be unavailable: until it is drained, the provider has restarted its
// VM and heard of its guest agent, or it has been upgraded, and it serves again. Tasks on Proxmox VE take their time
// too.
func turnTimeout(p *plan.Plan) time.Duration {
	return p.DrainTimeout + 3*p.UpgradeTimeout + 3*p.ReadyTimeout + p.AgentTimeout + p.TaskTimeout
}

// NewRemoval returns a Rollout that removes nodes: they go without canaries, and it is not waited until they serve
// again.
func NewRemoval(p *plan.Plan, l *Limiter, progress wait.Reporter) *Rollout {
	return &Rollout{Plan: p, Limiter: l, TurnTimeout: p.DrainTimeout + p.ReadyTimeout + p.TaskTimeout, Progress: progress}
}

// Disrupt does to a node what is to be done to it, and returns when the node serves again, or has been removed:
//
//  1. wait for the canary of its pool, and for the limiter
//  2. evaluate what is to be done
//  3. check that the cluster can do without the node; while nodes that this update sets up are missing, release the
//     limiter, and begin again when they have joined
//  4. back up etcd, for a control plane
//  5. cordon and drain the node, and check the cluster again
//  6. take the disruptive steps, each further one after one more check
//  7. wait until the node has rejoined, and uncordon it, unless it was removed
//  8. do what is left to be done after that, and release the limiter
//
// The first failure stops the rollout. failurePrefix begins its message, such as "worker-1 is not changed".
func (r *Rollout) Disrupt(ctx context.Context, n plan.Node, target Node, failurePrefix string) error {
	d, err := r.Prepare(ctx, n, target, failurePrefix)
	if err != nil {
		return err
	}

	if err = d.runSteps(ctx); err == nil {
		err = d.Finish(ctx)
	}

	return d.releaseWith(err)
}

// Prepare takes the first five steps, for what is taken down by others. Its error leaves the node as it was.
func (r *Rollout) Prepare(ctx context.Context, n plan.Node, target Node, failurePrefix string) (*Disruption, error) {
	canaryDone, _, err := r.canaries.WaitTurn(ctx, n, r.TurnTimeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}

	d := &Disruption{rollout: r, node: n, target: target, failurePrefix: failurePrefix}

	for {
		releaseLimiter, err := r.Limiter.Acquire(ctx, n.Name, n.Role, r.TurnTimeout, r.Progress)
		if err != nil {
			canaryDone()

			return nil, err
		}

		d.Release = func(err error) {
			releaseLimiter(err)
			canaryDone()
		}

		var awaited notStartedError

		switch err := d.prepare(ctx); {
		case err == nil:
			return d, nil
		case errors.As(err, new(missingError)):
			// The others get their turns: what is missing may be among them.
			d.Release(nil)

			return nil, fmt.Errorf("%s: %w", failurePrefix, err)
		case !errors.As(err, &awaited):
			return nil, d.releaseWith(err)
		}

		// Nothing has been done to it yet: others go first.
		releaseLimiter(nil)

		if err := d.waitForJoining(ctx); err != nil {
			r.Limiter.Fail(n.Name)
			canaryDone()

			return nil, fmt.Errorf("%s: %w", failurePrefix, err)
		}
	}
}

// Disruption is a node that is down, or about to be.
type Disruption struct {
	// Release ends it with what came of it.
	Release func(error)

	rollout       *Rollout
	node          plan.Node
	target        Node
	failurePrefix string
	work          Work
	// drain is nil for a node that keeps its pods.
	drain *Drain
}

func (d *Disruption) prepare(ctx context.Context) (err error) {
	if d.work, err = d.target.Evaluate(ctx); err != nil {
		return err
	}

	disruptive := d.work.Effect.Down() || d.work.Effect == impact.EffectRemove
	if d.work.NotInCluster || d.work.Unreachable || !disruptive && d.work.AfterUncordon == nil {
		return nil
	}

	if err := d.target.WaitDisruptable(ctx, d.work.Effect); IsWaitingForJoin(err) {
		return notStartedError{err}
	} else if err != nil {
		return err
	}

	if d.node.Role == spec.RoleControlPlane {
		if err := d.target.Backup(ctx); err != nil {
			return err
		}
	}

	if !disruptive || d.work.KeepPods {
		return nil
	}

	kube, err := d.target.Kubernetes(ctx)
	if err != nil {
		return err
	}

	d.drain = &Drain{Kube: kube, Node: d.node.Name, Timeout: d.rollout.Plan.DrainTimeout, Progress: d.rollout.Progress}
	if d.work.Drain != nil {
		err = d.work.Drain(ctx, *d.drain)
	} else {
		err = d.drain.Run(ctx)
	}

	if err != nil {
		return err
	}

	return d.recheck(ctx, d.work.Effect)
}

// notStartedError is a waitingForJoinError before anything was done to the node.
type notStartedError struct{ error }

// waitForJoining waits, without the limiter, until nodes have joined that this update sets up. What else keeps the node
// from being taken down is found out when it has its turn again.
func (d *Disruption) waitForJoining(ctx context.Context) error {
	r := d.rollout

	return wait.Until(ctx, r.Plan.ReadyTimeout, r.Progress, func(context.Context) error {
		if err := r.Limiter.CheckNoneFailed(); err != nil {
			return err
		}

		// Each node may take its time to answer.
		if err := d.target.WaitDisruptable(ctx, d.work.Effect); IsWaitingForJoin(err) {
			return wait.For("the cluster to tolerate the outage of %s: %v", d.node.Name, err)
		}

		return nil
	})
}

// recheck checks the cluster again, right before the node is taken down: since the first check, up to
// lifecycle.drainTimeout has gone by. A node that must not be taken down any more is uncordoned.
func (d *Disruption) recheck(ctx context.Context, e impact.Effect) error {
	err := d.target.WaitDisruptable(ctx, e)
	if err == nil || d.drain == nil {
		return err
	}

	err = fmt.Errorf("it was drained, and is uncordoned again because the cluster has changed in the meantime: %w", err)

	return errors.Join(err, d.drain.undo(ctx))
}

func (d *Disruption) runSteps(ctx context.Context) error {
	for i, step := range d.work.DisruptiveSteps {
		// Prepare has checked the cluster right before the first.
		if i > 0 {
			if needed, err := step.Needed(ctx); err != nil || !needed {
				return err
			}

			if err := d.recheck(ctx, step.Effect); err != nil {
				return err
			}
		}

		if err := step.Do(ctx); err != nil {
			return err
		}
	}

	return nil
}

// Finish waits until the node serves again, and does what is left to be done on it.
func (d *Disruption) Finish(ctx context.Context) error {
	if d.work.NotInCluster || d.work.Effect == impact.EffectRemove {
		return nil
	}

	if err := d.target.WaitRejoined(ctx); err != nil {
		return err
	}

	if err := d.uncordon(ctx); err != nil || d.work.AfterUncordon == nil {
		return err
	}

	return d.work.AfterUncordon(ctx)
}

// Undo uncordons a node that was drained, and has not been taken down.
func (d *Disruption) Undo(ctx context.Context) error {
	if d.drain == nil {
		return nil
	}

	return d.uncordon(ctx)
}

func (d *Disruption) uncordon(ctx context.Context) error {
	kube, err := d.target.Kubernetes(ctx)
	if err != nil {
		return err
	}

	return kube.Uncordon(ctx, d.node.Name)
}

// releaseWith releases it, and says what has failed.
func (d *Disruption) releaseWith(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", d.failurePrefix, err)
	}

	d.Release(err)

	return err
}
