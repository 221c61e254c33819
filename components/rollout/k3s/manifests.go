package k3s

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/rollout"
)

// ApplyManifests runs before it is noted that Kubernetes has the cluster's manifests.
func (c *Cluster) ApplyManifests(ctx context.Context, _ *pulumi.ResourceHookArgs) error {
	all, known := c.Manifests.Get(ctx, c.Plan.ReadyTimeout)
	if !known {
		return errors.New("the manifests of the cluster are not available")
	}

	kube, err := rollout.WaitKubernetes(ctx, c.Plan, c.Progress, c.Kubernetes)
	if err != nil {
		return err
	}

	if err := kube.Apply(ctx, all, c.Plan.ReadyTimeout, c.Progress); err != nil {
		return fmt.Errorf("the manifests of the cluster were not applied: %w", err)
	}

	return nil
}
