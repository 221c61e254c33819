// Package removal takes a node out of its cluster before it loses its machine, or says why it may not lose it.
package removal

import (
	"sync/atomic"

	"talos-proxmox/components/rollout/talos/bootstrap"
	"talos-proxmox/components/rollout/talos/cluster"
)

// Removals decides whether a node may lose its machine, and takes it out of the cluster before it does.
type Removals struct {
	*cluster.Cluster

	// bootstrap ensures that etcd is not forgotten with its last control plane.
	bootstrap *bootstrap.Bootstrap
	// abandoned says that etcd was found to have lost its quorum, and control planes are going: what is asked of those
	// while their VMs are deleted proves nothing.
	abandoned atomic.Bool
}

// New returns the Removals of a cluster.
func New(c *cluster.Cluster, b *bootstrap.Bootstrap) *Removals {
	return &Removals{Cluster: c, bootstrap: b}
}
