package changes

import (
	"context"
	"fmt"

	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/wait"
)

// warnOfRemovedFeatures says what a node, and once in a run the cluster, has in use that is gone in the version of
// Kubernetes to go to. It stops nothing: what is listed may not be all, and what uses it may not matter.
func (r *Changes) warnOfRemovedFeatures(ctx context.Context, c nodeChange, now talosapi.System) {
	from, to := talosimage.System(now.Configuration).Kubernetes, talosimage.System(c.wanted).Kubernetes

	found, err := talosapi.Removed(ctx, c.Target, c.credentials, c.node.Role == spec.RoleControlPlane, from, to)
	r.warnOf(c.Name, found, err)

	r.checkedDeprecations.Do(func() {
		kube, err := cluster.Kubernetes(ctx, r.peersOf(c), c.credentials)
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
			defer cancel()

			found, err = kube.Removed(ctx, from, to)
		}

		r.warnOf("the cluster", found, err)
	})
}

// warnOf shows what was found, or why nothing can be.
func (r *Changes) warnOf(subject string, found []string, err error) {
	if err != nil {
		found = []string{fmt.Sprintf("could not check whether %s uses flags or APIs of Kubernetes that are removed "+
			"in the next version: %v",
			subject, wait.Reason(err))}
	}

	for _, text := range found {
		r.Warn(text)
	}
}
