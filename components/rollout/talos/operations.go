// Package talos is what is done to the nodes of a Talos cluster that run, or are about to: they are configured,
// changed, upgraded, restarted and removed, and etcd is bootstrapped and kept.
package talos

import (
	"talos-proxmox/components/rollout/talos/bootstrap"
	"talos-proxmox/components/rollout/talos/changes"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/rollout/talos/removal"
)

// Operations on the nodes of one cluster.
type Operations struct {
	Changes   *changes.Changes
	Restarts  *changes.Restarts
	Removals  *removal.Removals
	Bootstrap *bootstrap.Bootstrap
}

// New returns the operations on the nodes of a cluster.
func New(o cluster.Options) Operations {
	c := cluster.New(o)
	b := bootstrap.New(c)
	changed := changes.New(c, b)

	return Operations{
		Changes: changed, Restarts: changes.NewRestarts(changed), Removals: removal.New(c, b), Bootstrap: b,
	}
}
