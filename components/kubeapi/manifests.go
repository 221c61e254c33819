package kubeapi

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"talos-proxmox/components/wait"
)

// Sync makes what there is what the manifests say, as talosctl upgrade-k8s does: what is missing is made, what differs
// is updated, and nothing is removed.
func (c *Client) Sync(ctx context.Context, objects []*unstructured.Unstructured, bound time.Duration,
	progress wait.Reporter,
) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	results, done := make(chan manifests.SyncResult), make(chan error, 1)

	go func() {
		defer close(results)

		done <- manifests.Sync(ctx, objects, rest.CopyConfig(c.config), false, results)
	}()

	for r := range results {
		if !r.Skipped {
			progress("Kubernetes gets " + r.Path)
		}
	}

	if err := <-done; err != nil {
		return fmt.Errorf("what Talos installs into Kubernetes is not up to date: %w", err)
	}

	return nil
}
