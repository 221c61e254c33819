package k3s

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/upgradepath"
	"talos-proxmox/components/wait"
)

// checkRemovedFeatures checks, before another minor version is installed, that the node starts with it: K3s ends with
// feature gates that are gone. User data configured the node once, so that its own file decides, not the plan. What
// cannot be checked is warned of, as are objects of APIs that are gone, once in a run.
func (c *Cluster) checkRemovedFeatures(ctx context.Context, n plan.Node, from string) error {
	to := c.Plan.Kubernetes
	if !upgradepath.Minor(from, c.Plan.K3s.Version) {
		return nil
	}

	c.checkedObjects.Do(func() { c.warnOfRemovedObjects(ctx, from, to) })

	text, err := c.configurationOf(ctx, n)

	var removed []string
	if err == nil {
		removed, err = k3sconfig.RemovedFeatures(text, to)
	}

	switch {
	case err != nil:
		c.Warn(fmt.Sprintf("could not check whether K3s %s starts on %s, because feature gates are unknown: %v",
			c.Plan.K3s.Version, n.Name, err))
	case len(removed) > 0:
		return fmt.Errorf("its %s has %s: K3s does not start with feature gates that Kubernetes %s does not know; remove "+
			"them there, on all nodes that have them, then run 'pulumi up' again", k3sconfig.ConfigFile,
			strings.Join(removed, ", "), to)
	}

	return nil
}

func (c *Cluster) warnOfRemovedObjects(ctx context.Context, from, to string) {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	var found []string

	from, _, _ = strings.Cut(from, "+")

	kube, err := c.anyKubernetes(ctx)
	if err == nil {
		found, err = kube.Removed(ctx, from, to)
	}

	if err != nil {
		found = []string{fmt.Sprintf("could not check whether the cluster uses APIs of Kubernetes that are removed in the "+
			"next version: %v", wait.Reason(err))}
	}

	for _, text := range found {
		c.Warn(text)
	}
}
