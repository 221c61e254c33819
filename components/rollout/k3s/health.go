package k3s

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// Health of a node, as Kubernetes sees it.
const (
	HealthReady    = "ready"
	HealthCordoned = "cordoned"
	HealthNotReady = "not ready"
	HealthMissing  = "missing"
	HealthUnknown  = "unknown"
)

// Health asks the cluster for the health of each node. It does not fail without an answer: an update succeeds that has
// nothing to do with an unhealthy cluster.
func (c *Cluster) Health(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 2*wait.RequestTimeout)
	defer cancel()

	kube, err := c.anyKubernetes(ctx)

	var nodes []kubeapi.Node
	if err == nil {
		nodes, err = kube.Nodes(ctx)
	}

	health := map[string]string{}
	for _, n := range c.Plan.Nodes() {
		health[n.Name] = healthOf(n, nodes, err == nil)
	}

	if err != nil {
		c.Warn(fmt.Sprintf("could not determine the health of the nodes: %v", wait.Reason(err)))
	}

	return health
}

func healthOf(planned plan.Node, nodes []kubeapi.Node, answered bool) string {
	at := slices.IndexFunc(nodes, func(n kubeapi.Node) bool { return n.Name == planned.Name })

	switch {
	case !answered:
		return HealthUnknown
	case at < 0:
		return HealthMissing
	case !nodes[at].Ready:
		return HealthNotReady
	case nodes[at].Cordoned:
		return HealthCordoned
	default:
		return HealthReady
	}
}
