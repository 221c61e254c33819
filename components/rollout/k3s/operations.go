package k3s

import (
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
)

// Operations on the nodes of one cluster.
type Operations struct {
	Cluster  *Cluster
	Upgrades *Upgrades
	Removals *Removals
}

// New returns the operations on the nodes of a cluster.
func New(o Options) Operations {
	c := &Cluster{Options: o, connect: kubeapi.NewK3s, discovery: proxmoxvm.DiscoveryOf(o.Plan, o.Proxmox)}

	return Operations{c, &Upgrades{Cluster: c, rollout: rollout.New(o.Plan, o.Limiter, o.Progress)}, &Removals{c}}
}
