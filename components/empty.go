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

// empty takes the pods off a node before something happens to it. One that they do not leave takes pods again.
func empty(ctx context.Context, kube *kubeapi.Client, name string, bound time.Duration, say wait.Say) error {
	if err := cordon(ctx, kube, name); err != nil {
		return err
	}

	err := kube.Drain(ctx, name, bound, say)
	if err == nil {
		return nil
	}

	// A run that was interrupted takes the cordon away too.
	return errors.Join(
		lifecycle.Refusal{Rule: err.Error(), Remedy: "make room for its pods elsewhere, or raise lifecycle.drainTimeout; then run 'pulumi up' again"},
		kube.Uncordon(context.WithoutCancel(ctx), name))
}

func cordon(ctx context.Context, kube *kubeapi.Client, name string) error {
	if err := kube.Cordon(ctx, name); err != nil {
		return fmt.Errorf("it is not cordoned: %w", err)
	}

	return nil
}
