package talos

import (
	"context"
	"maps"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// virtualIPs are the shared addresses that a control plane's configuration names, with their links: in
// machine.network.interfaces or in Layer2VIPConfig documents.
func virtualIPs(cfg config.Provider) map[netip.Addr]string {
	out := map[netip.Addr]string{}

	if cfg == nil || cfg.Machine() == nil || !cfg.Machine().Type().IsControlPlane() {
		return out
	}

	for _, d := range cfg.Machine().Network().Devices() {
		if v := d.VIPConfig(); v != nil {
			if ip, err := netip.ParseAddr(v.IP()); err == nil {
				out[ip] = d.Interface()
			}
		}
	}

	for _, v := range cfg.NetworkVirtualIPConfigs() {
		out[v.VIP()] = v.Link()
	}

	return out
}

// runVIP campaigns for the shared addresses while etcd runs: one member holds each, and another takes over when it stops
// (Talos: controllers/network/operator/vip.go). A member that lost the quorum gives them up.
func (n *node) runVIP(ctx context.Context, m *membership) {
	for {
		held := map[netip.Addr]string{}

		for ip, link := range virtualIPs(n.config()) {
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
