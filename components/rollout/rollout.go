// Package rollout takes nodes down one after the other, without harm to what runs on them. Rollout.Disrupt lists the
// steps.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// Cluster is what a rollout asks of the system that runs on a node, Talos or K3s, and of the node's peers.
type Cluster interface {
	// Evaluate says what is to be done to the node, now that it is its turn: what was found before may have changed, and a
	// run that was cut off may have done any of it.
	Evaluate(ctx context.Context) (Change, error)
	// CheckDisruption waits until the cluster can do without the node, for good if it is removed. Its error says why it
	// cannot.
	CheckDisruption(ctx context.Context, e impact.Effect) error
	// Backup keeps etcd as it is now.
	Backup(ctx context.Context) error
	// Kubernetes waits for a control plane that answers. The node itself is asked last.
	Kubernetes(ctx context.Context) (*kubeapi.Client, error)
	// WaitRejoined waits until the node does its work again, after all that was done to it.
	WaitRejoined(ctx context.Context) error
}

// Change is what is to be done to a node.
type Change struct {
	// Effect is that of the first act.
	Effect impact.Effect
	// NotJoined says that the node is in no cluster: nothing notices that it is taken down.
	NotJoined bool
	// Unreachable says that the node cannot be drained, and is taken down as it is: the cluster does without it already.
	Unreachable bool
	// KeepPods says that pods stay on the node meanwhile: they outlive the change, or have no other place.
	KeepPods bool
	// Drain takes the pods off the node; nil: all of them leave, or nothing is done to it.
	Drain func(context.Context, Drain) error
	// Acts take the node down. A VM is restarted by the provider instead, between Prepare and Finish.
	Acts []Act
	// Online is what is done at last, with pods on the node; nil: nothing.
	Online func(context.Context) error
}

// Act takes a node down and waits until it is up again.
type Act struct {
	Effect impact.Effect
	// Needed says, for an act that follows another, whether there is anything left for it.
	Needed func(context.Context) (bool, error)
	Do     func(context.Context) error
}

// Rollout is one kind of change, to any number of nodes.
type Rollout struct {
	Plan *plan.Plan
	// Limiter is shared by all that takes nodes down.
	Limiter *Limiter
	// Bound is the longest time that another node may be unavailable.
	Bound    time.Duration
	Progress wait.Reporter
	// canaries let one worker of a pool go first; nil: none does.
	canaries *Canaries
}

// New returns a Rollout of the nodes of a plan.
func New(p *plan.Plan, l *Limiter, progress wait.Reporter) *Rollout {
	r := &Rollout{Plan: p, Limiter: l, Bound: bound(p), Progress: progress}
	if p.Canary {
		r.canaries = NewCanaries()
	}

	return r
}

// bound is the longest time that a node may be unavailable: until it is drained, the provider has restarted its VM and
// heard of its guest agent, or it has been upgraded, and it serves again. Tasks on Proxmox VE take their time too.
func bound(p *plan.Plan) time.Duration {
	return p.DrainTimeout + 3*p.UpgradeTimeout + 3*p.ReadyTimeout + p.AgentTimeout + p.TaskTimeout
}

// Removals returns a Rollout that removes nodes: they go without canaries, and it is not waited until they serve again.
func Removals(p *plan.Plan, l *Limiter, progress wait.Reporter) *Rollout {
	return &Rollout{Plan: p, Limiter: l, Bound: p.DrainTimeout + p.ReadyTimeout + p.TaskTimeout, Progress: progress}
}

// Disrupt does to a node what is to be done to it, and returns when the node serves again, or has been removed:
//
//  1. wait for the canary of its pool, and for the limiter
//  2. evaluate what is to be done
//  3. check that the cluster can do without the node
//  4. back up etcd, for a control plane
//  5. cordon and drain the node, and check the cluster again
//  6. act, each further act after one more check
//  7. wait until the node has rejoined, and uncordon it, unless it was removed
//  8. do what is done online, and release the limiter
//
// The first failure stops the rollout. failure begins its message, such as "worker-1 is not changed".
func (r *Rollout) Disrupt(ctx context.Context, n plan.Node, c Cluster, failure string) error {
	d, err := r.Prepare(ctx, n, c, failure)
	if err != nil {
		return err
	}

	if err = d.act(ctx); err == nil {
		err = d.Finish(ctx)
	}

	return d.end(err)
}

// Prepare takes the first five steps, for what is taken down by others. Its error leaves the node as it was.
func (r *Rollout) Prepare(ctx context.Context, n plan.Node, c Cluster, failure string) (*Disruption, error) {
	done, _, err := r.canaries.Enter(ctx, n, r.Bound)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.Name, err)
	}

	released, err := r.Limiter.Acquire(ctx, n.Name, n.Role, r.Bound, r.Progress)
	if err != nil {
		done()

		return nil, err
	}

	release := func(err error) {
		released(err)
		done()
	}

	d := &Disruption{Release: release, rollout: r, node: n, cluster: c, failure: failure}
	if err := d.prepare(ctx); err != nil {
		return nil, d.end(err)
	}

	return d, nil
}

// Disruption is a node that is down, or about to be.
type Disruption struct {
	// Release ends it with what came of it.
	Release func(error)

	rollout *Rollout
	node    plan.Node
	cluster Cluster
	failure string
	change  Change
	// drain is nil for a node that keeps its pods.
	drain *Drain
}

func (d *Disruption) prepare(ctx context.Context) (err error) {
	if d.change, err = d.cluster.Evaluate(ctx); err != nil {
		return err
	}

	down := d.change.Effect.Down() || d.change.Effect == impact.EffectRemove
	if d.change.NotJoined || d.change.Unreachable || !down && d.change.Online == nil {
		return nil
	}

	if err := d.cluster.CheckDisruption(ctx, d.change.Effect); err != nil {
		return err
	}

	if d.node.Role == spec.RoleControlPlane {
		if err := d.cluster.Backup(ctx); err != nil {
			return err
		}
	}

	if !down || d.change.KeepPods {
		return nil
	}

	kube, err := d.cluster.Kubernetes(ctx)
	if err != nil {
		return err
	}

	d.drain = &Drain{Kube: kube, Node: d.node.Name, Bound: d.rollout.Plan.DrainTimeout, Progress: d.rollout.Progress}
	if d.change.Drain != nil {
		err = d.change.Drain(ctx, *d.drain)
	} else {
		err = d.drain.Run(ctx)
	}

	if err != nil {
		return err
	}

	return d.recheck(ctx, d.change.Effect)
}

// recheck checks the cluster again, right before the node is taken down: since the first check, up to
// lifecycle.drainTimeout has gone by. A node that must not be taken down any more is uncordoned.
func (d *Disruption) recheck(ctx context.Context, e impact.Effect) error {
	err := d.cluster.CheckDisruption(ctx, e)
	if err == nil || d.drain == nil {
		return err
	}

	err = fmt.Errorf("it was drained, and is uncordoned again because the cluster has changed in the meantime: %w", err)

	return errors.Join(err, d.drain.undo(ctx))
}

func (d *Disruption) act(ctx context.Context) error {
	for i, act := range d.change.Acts {
		// Prepare has checked the cluster right before the first.
		if i > 0 {
			if needed, err := act.Needed(ctx); err != nil || !needed {
				return err
			}

			if err := d.recheck(ctx, act.Effect); err != nil {
				return err
			}
		}

		if err := act.Do(ctx); err != nil {
			return err
		}
	}

	return nil
}

// Finish waits until the node serves again, and does what is done online.
func (d *Disruption) Finish(ctx context.Context) error {
	if d.change.NotJoined || d.change.Effect == impact.EffectRemove {
		return nil
	}

	if err := d.cluster.WaitRejoined(ctx); err != nil {
		return err
	}

	if err := d.uncordon(ctx); err != nil || d.change.Online == nil {
		return err
	}

	return d.change.Online(ctx)
}

// Undo uncordons a node that was drained, and has not been taken down.
func (d *Disruption) Undo(ctx context.Context) error {
	if d.drain == nil {
		return nil
	}

	return d.uncordon(ctx)
}

func (d *Disruption) uncordon(ctx context.Context) error {
	kube, err := d.cluster.Kubernetes(ctx)
	if err != nil {
		return err
	}

	return kube.Uncordon(ctx, d.node.Name)
}

// end releases it, and says what has failed.
func (d *Disruption) end(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", d.failure, err)
	}

	d.Release(err)

	return err
}

// Drain takes the pods off a node before the node is taken down, for whatever reason.
type Drain struct {
	Kube     *kubeapi.Client
	Node     string
	Bound    time.Duration
	Progress wait.Reporter
}

// Run cordons the node and drains it. A node that its pods do not leave is uncordoned.
func (d Drain) Run(ctx context.Context) error {
	if err := d.Cordon(ctx); err != nil {
		return err
	}

	if err := d.Evict(ctx); err != nil {
		return errors.Join(err, d.undo(ctx))
	}

	return nil
}

// Evict takes the pods off the node.
func (d Drain) Evict(ctx context.Context) error {
	if err := d.Kube.Drain(ctx, d.Node, d.Bound, d.Progress); err != nil {
		return spec.Blocked(
			err.Error(),
			"make room for its pods elsewhere, or raise lifecycle.drainTimeout; then run 'pulumi up' again",
		)
	}

	return nil
}

// Cordon keeps pods off the node.
func (d Drain) Cordon(ctx context.Context) error {
	if err := d.Kube.Cordon(ctx, d.Node); err != nil {
		return fmt.Errorf("could not cordon it: %w", err)
	}

	return nil
}

// undo uncordons the node, also in a run that is interrupted.
func (d Drain) undo(ctx context.Context) error {
	return d.Kube.Uncordon(context.WithoutCancel(ctx), d.Node)
}
