package talos

import (
	"context"
	"maps"
	"net/netip"
	"slices"
)

// virtualIPs are the shared addresses that a control plane's configuration names, with their links: in machine.network.interfaces or
// in Layer2VIPConfig documents. One whose link is not there is nobody's.
func (n *node) virtualIPs() map[netip.Addr]string {
	cfg := n.config()
	if cfg == nil || cfg.Machine() == nil || !cfg.Machine().Type().IsControlPlane() {
		return nil
	}

	shared := n.configuredLinks(cfg).shared
	links := n.bareLinks()

	maps.DeleteFunc(shared, func(_ netip.Addr, name string) bool {
		return !slices.ContainsFunc(links, func(l link) bool { return l.name == name })
	})

	return shared
}

// runVIP campaigns for the shared addresses while etcd runs: one member holds each, and another takes over when it stops
// (Talos: controllers/network/operator/vip.go). A member that lost the quorum gives them up.
func (n *node) runVIP(ctx context.Context, m *membership) {
	for {
		held := map[netip.Addr]string{}

		for ip, link := range n.virtualIPs() {
			if m.cluster.hold(ip, m.id) {
				held[ip] = link
			}
		}

		n.mu.Lock()
		same := maps.Equal(n.held, held)
		n.held = held
		n.mu.Unlock()

		if !same {
			n.kick.notify()
		}

		if !pause(ctx, retry) {
			return
		}
	}
}

// hold elects the holder of a shared address, and reports whether the member is it.
func (c *etcdCluster) hold(ip netip.Addr, id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.healthyLocked() != nil {
		return false
	}

	if m := c.find(c.holders[ip]); m == nil || !m.running {
		c.holders[ip] = id
	}

	return c.holders[ip] == id
}
