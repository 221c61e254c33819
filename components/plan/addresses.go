package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"talos-proxmox/components/spec"
)

// FixedAddress is an address, or a range of them, that no pod may have, with the key that states it.
type FixedAddress struct {
	Path, Value string
	Range       netipx.IPRange
	// Node says that it is a node's, which must not lie in the network of services either: the address of anything else
	// there works until a service gets it.
	Node bool
}

// In says that a network of pods or services holds the address, or a part of the range. One that holds the whole
// network of the nodes is a problem of its own.
func (a FixedAddress) In(own, nodes netip.Prefix) bool {
	return a.Range.Overlaps(netipx.RangeOfPrefix(own)) && !spec.Holds(own, nodes)
}

// FixedAddresses are those of the cluster: of the router, the endpoint and the load balancer.
func (p *Plan) FixedAddresses() []FixedAddress {
	var all []FixedAddress

	for _, one := range []struct {
		path    string
		address netip.Addr
	}{{"network.gateway", p.Gateway}, {"cluster.endpoint.address", p.VIP}} {
		if a := one.address; a.IsValid() {
			all = append(all, FixedAddress{Path: one.path, Value: a.String(), Range: netipx.IPRangeFrom(a, a)})
		}
	}

	if p.LoadBalancer != nil {
		for _, r := range p.LoadBalancer.Ranges {
			all = append(all, FixedAddress{Path: "cluster.cni.loadBalancer.addresses", Value: r.String(), Range: r})
		}
	}

	return all
}

// FixedAddress is the address of a node of the pool; false where it has none that is known.
func (p PlannedPool) FixedAddress(n Node) (FixedAddress, bool) {
	if !n.Address.IsValid() {
		return FixedAddress{}, false
	}

	path := "pools." + p.Name + ".addresses"

	if !slices.ContainsFunc(p.Addresses, func(s Span[netip.Addr]) bool {
		return s.First.Compare(n.Address) <= 0 && n.Address.Compare(s.Last) <= 0
	}) {
		nodes := "nodes"
		if p.GPU {
			nodes = "gpus"
		}

		path = fmt.Sprintf("pools.%s.%s.%d.address", p.Name, nodes, n.Ordinal)
	}

	only := netipx.IPRangeFrom(n.Address, n.Address)

	return FixedAddress{Path: path, Value: n.Address.String(), Range: only, Node: true}, true
}
