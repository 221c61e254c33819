package components

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/wait"
)

// drain takes the pods off a node before the node is taken down, for whatever reason.
type drain struct {
	kube  *kubeapi.Client
	node  string
	bound time.Duration
	say   wait.Say
}

// run cordons the node and drains it. A node that its pods do not leave is uncordoned.
func (d drain) run(ctx context.Context) error {
	if err := d.cordon(ctx); err != nil {
		return err
	}

	if err := d.evict(ctx); err != nil {
		return errors.Join(err, d.undo(ctx))
	}

	return nil
}

func (d drain) evict(ctx context.Context) error {
	if err := d.kube.Drain(ctx, d.node, d.bound, d.say); err != nil {
		return lifecycle.Refusal{
			Rule:   err.Error(),
			Remedy: "make room for its pods elsewhere, or raise lifecycle.drainTimeout; then run 'pulumi up' again",
		}
	}

	return nil
}

func (d drain) cordon(ctx context.Context) error {
	if err := d.kube.Cordon(ctx, d.node); err != nil {
		return fmt.Errorf("it is not cordoned: %w", err)
	}

	return nil
}

// recheck checks the cluster again, right before the node is taken down: since the first check, up to
// lifecycle.drainTimeout has gone by. A node that must not be taken down any more is uncordoned.
func (d drain) recheck(ctx context.Context, check func(context.Context) error) error {
	err := check(ctx)
	if err == nil {
		return nil
	}

	err = fmt.Errorf("it was drained, and is uncordoned again, for the cluster has changed meanwhile: %w", err)

	return errors.Join(err, d.undo(ctx))
}

// undo uncordons the node, also in a run that is interrupted.
func (d drain) undo(ctx context.Context) error {
	return d.kube.Uncordon(context.WithoutCancel(ctx), d.node)
}
