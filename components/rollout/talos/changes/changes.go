// Package changes is what changes nodes of Talos that run, or are about to: their first configuration, changes of it,
// upgrades of Talos and Kubernetes, and restarts.
package changes

import (
	"sync"

	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/bootstrap"
	"talos-proxmox/components/rollout/talos/cluster"
)

// Changes are changes of the configuration of nodes, and of the Talos and Kubernetes that they run. What takes a node
// down is done before the provider applies the configuration, which then needs no reboot any more.
type Changes struct {
	*cluster.Cluster

	rollout *rollout.Rollout
	// canaries of the changes that nodes take without a reboot.
	canaries  *rollout.Canaries
	bootstrap *bootstrap.Bootstrap
	// checkedDeprecations is done when the cluster was searched for what the next version of Kubernetes has removed.
	checkedDeprecations sync.Once
	// warned are warnings of changes that were shown already: each node has the same.
	warned sync.Map
	// manifestsSynced says that what Talos installs into Kubernetes is up to date. It is only read
	// while a control plane is changed.
	manifestsSynced bool
}

// New returns the Changes of a cluster.
func New(c *cluster.Cluster, b *bootstrap.Bootstrap) *Changes {
	return &Changes{
		Cluster: c, rollout: rollout.New(c.Plan, c.Limiter, c.Progress), canaries: rollout.NewCanaries(), bootstrap: b,
	}
}
