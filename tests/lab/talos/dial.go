package talos

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// dial connects a node to another machine, by the network of the lab: names are those of the cluster's members and what
// the lab's DNS knows, and there is nothing beyond loopback.
func (n *node) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	ip, err := n.lookup(host)
	if err != nil {
		return nil, err
	}

	if !ip.IsLoopback() {
		return nil, fmt.Errorf("dial tcp %s: connect: network is unreachable", net.JoinHostPort(ip.String(), port))
	}

	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ip.String(), port))
}

// lookup resolves a name as Talos' host DNS does: members first.
func (n *node) lookup(host string) (netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, nil
	}

	if n.config() != nil {
		for _, m := range n.fw.discovery.of(n) {
			if len(m.Addresses) > 0 && (strings.EqualFold(host, m.Hostname) || strings.EqualFold(host, m.Nodename)) {
				return m.Addresses[0], nil
			}
		}
	}

	if found := n.fw.opts.Resolve(host); len(found) > 0 {
		return found[0], nil
	}

	return netip.Addr{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// dialTCP is dial in the shape that gRPC wants.
func (n *node) dialTCP(ctx context.Context, address string) (net.Conn, error) {
	return n.dial(ctx, "tcp", address)
}
