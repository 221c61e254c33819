package talos

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// virtualIPs are the shared addresses that a control plane's configuration names, with their links: in
// machine.network.interfaces or in Layer2VIPConfig documents.
func (n *node) virtualIPs() map[netip.Addr]string {
	cfg := n.config()
	if cfg == nil || cfg.Machine() == nil || !cfg.Machine().Type().IsControlPlane() {
		return nil
	}

	return n.configuredLinks(cfg).shared
}

// kubeVIPs are the shared addresses that pods of kube-vip on the machine announce, with their links.
func (n *node) kubeVIPs() map[netip.Addr]string {
	out := map[netip.Addr]string{}

	n.mu.Lock()
	in := n.kube.in
	n.mu.Unlock()

	if in == nil {
		return out
	}

	for _, pod := range in.RunningOn(n.nodename()) {
		for _, c := range pod.Spec.Containers {
			if !strings.Contains(c.Image, "/kube-vip:") {
				continue
			}

			env := map[string]string{}
			for _, e := range c.Env {
				env[e.Name] = e.Value
			}

			ip, err := netip.ParseAddr(env["address"])
			if err != nil || env["cp_enable"] != "true" || env["vip_arp"] != "true" || !hasCapability(c, "NET_ADMIN") {
				continue
			}

			// It reaches the API by Talos' balancer, or not at all: the service's address needs a kube-proxy, which needs the
			// API.
			if env["KUBERNETES_SERVICE_HOST"] == "localhost" && n.kubePrism() {
				out[ip] = env["vip_interface"]
			}
		}
	}

	return out
}

func hasCapability(c corev1.Container, name corev1.Capability) bool {
	s := c.SecurityContext

	return s != nil && s.Capabilities != nil && slices.Contains(s.Capabilities.Add, name)
}

// runVIP campaigns for the shared addresses while etcd runs: one member holds each, and another takes over when it
// stops (Talos: controllers/network/operator/vip.go). A member that lost the quorum gives them up.
func (n *node) runVIP(ctx context.Context, m *membership) {
	for {
		wanted, held := n.kubeVIPs(), map[netip.Addr]string{}
		maps.Copy(wanted, n.virtualIPs())

		for ip, name := range wanted {
			// One whose link is missing belongs to no node.
			if slices.ContainsFunc(n.allLinks(), func(l link) bool { return l.name == name }) && m.cluster.hold(ip, m.id) {
				held[ip] = name
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
	if c.answers(id) != nil {
		return false
	}

	members := c.known()

	c.mu.Lock()
	defer c.mu.Unlock()

	if !slices.ContainsFunc(members, func(m etcdMember) bool { return m.id == c.holders[ip] && m.connected() }) {
		c.holders[ip] = id
	}

	return c.holders[ip] == id
}
