package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// Drain takes the pods off a node before the node is taken down, for whatever reason.
type Drain struct {
	Kube     *kubeapi.Client
	Node     string
	Timeout  time.Duration
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
	if err := d.Kube.Drain(ctx, d.Node, d.Timeout, d.Progress); err != nil {
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
