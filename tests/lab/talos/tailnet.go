package talos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// tailnetInterface is the name of the interface of the tailnet. It carries IP alone: nothing asks for an address by ARP there,
// and an address that is put on it has no route in the tailnet.
const tailnetInterface = "tailscale0"

// tailnetLink is the interface that the service makes; its address comes with the membership, which takes a key.
func (n *node) tailnetLink() (link, bool) {
	if n.config() == nil || !n.services.running("ext-"+tailscale) {
		return link{}, false
	}

	l := link{name: tailnetInterface, virtual: true}

	if cfg := n.extensionConfig(tailscale); cfg != nil && variable(cfg.Environment(), "TS_AUTHKEY") != "" {
		sum := sha256.Sum256([]byte(n.nodeID()))
		// of 100.64.0.0/10
		l.addresses = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64 | sum[0]&63, sum[1], sum[2]}), 32)}
	}

	return l, true
}

// tailnetAddress is what the node has as a member of the tailnet.
func (n *node) tailnetAddress() (netip.Addr, bool) {
	l, running := n.tailnetLink()
	if !running || len(l.addresses) == 0 {
		return netip.Addr{}, false
	}

	return l.addresses[0].Addr(), true
}

// advertised are the routes that the node offers to the tailnet.
func (n *node) advertised() []netip.Prefix {
	var out []netip.Prefix

	for route := range strings.SplitSeq(variable(n.extensionConfig(tailscale).Environment(), "TS_ROUTES"), ",") {
		if p, err := netip.ParsePrefix(route); err == nil {
			out = append(out, p)
		}
	}

	return out
}

// lanAddresses are the addresses that the node answers to in the network of its host.
func (n *node) lanAddresses() []netip.Addr {
	var out []netip.Addr

	for _, l := range n.allLinks() {
		if l.name == tailnetInterface {
			continue
		}

		for _, p := range l.addresses {
			out = append(out, p.Addr())
		}
	}

	return out
}

// ApproveRoute approves a route in the tailnet, as its administrator does: without it, an advertised one is not used.
func (f *Firmware) ApproveRoute(route netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.approved = append(f.approved, route)
}

// DialTailnet connects as another machine of the tailnet: to a member at its address there, or to an address of an
// approved route, through a member that advertises it. The tailnet reaches nothing else.
func (f *Firmware) DialTailnet(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}

	f.mu.Lock()
	approved := slices.Clone(f.approved)
	f.mu.Unlock()

	routed := func(p netip.Prefix) bool { return p.Contains(to.Addr()) && slices.Contains(approved, p) }

	for _, n := range f.nodes() {
		member, joined := n.tailnetAddress()
		if !joined {
			continue
		}

		at := to

		switch lan := n.lanAddresses(); {
		case member == to.Addr() && len(lan) > 0:
			at = netip.AddrPortFrom(lan[0], to.Port())
		case !slices.ContainsFunc(n.advertised(), routed):
			continue
		}

		return (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
	}

	return nil, fmt.Errorf("the tailnet has no route to %s", to.Addr())
}
