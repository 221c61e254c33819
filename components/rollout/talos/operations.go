// Package talos is what is done to the nodes of a Talos cluster that run, or are about to: they are configured,
// changed, upgraded, restarted and removed, and etcd is bootstrapped and kept.
package talos

import (
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/bootstrap"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/rollout/talos/removal"
)

// Operations on the nodes of one cluster.
type Operations struct {
	Changes   *Changes
	Restarts  *Restarts
	Removals  *removal.Removals
	Bootstrap *bootstrap.Bootstrap
}

// New returns the operations on the nodes of a cluster.
func New(o cluster.Options) Operations {
	c := cluster.New(o)
	b := bootstrap.New(c)
	changes := &Changes{
		Cluster: c, rollout: rollout.New(o.Plan, o.Limiter, o.Progress), canaries: rollout.NewCanaries(), bootstrap: b,
	}

	return Operations{
		Changes: changes, Bootstrap: b, Removals: removal.New(c, b),
		Restarts: &Restarts{Changes: changes, discovery: proxmoxvm.DiscoveryOf(o.Plan, o.Proxmox)},
	}
}
