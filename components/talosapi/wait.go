package talosapi

import (
	"context"
	"time"

	"talos-proxmox/components/wait"
)

// WaitAnswering waits until the node's API port answers, configured or not.
func WaitAnswering(ctx context.Context, t Target, bound time.Duration, progress wait.Reporter) error {
	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		if err := answers(ctx, t); err != nil {
			return wait.For("%s to answer at %s (%v)", t.Name, t.Address, wait.Reason(err))
		}

		return nil
	})
}

// WaitReady waits until etcd, the kubelet and the Kubernetes API server are up on every control plane. When it gives
// up, the error says of each node what it still lacked.
func WaitReady(ctx context.Context, nodes []Target, c Credentials, bound time.Duration, progress wait.Reporter) error {
	probes, err := open(ctx, nodes, c)
	if err != nil {
		return err
	}
	defer probes.close()

	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		return probes.missing(ctx)
	})
}
