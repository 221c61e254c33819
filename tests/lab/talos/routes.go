package talos

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// publishLoopback shows the loopback interface, which every machine has.
func (n *node) publishLoopback(b *board) {
	show(b, network.NewLinkStatus(network.NamespaceName, "lo"), func(s *network.LinkStatusSpec) {
		s.Index, s.Type, s.MTU = 1, nethelpers.LinkLoopbck, 65536
		s.OperationalState, s.LinkState = nethelpers.OperStateUnknown, true
	})

	for _, a := range n.loopback() {
		show(b, network.NewAddressStatus(network.NamespaceName, network.AddressID("lo", a)),
			func(s *network.AddressStatusSpec) {
				s.Address, s.LinkName, s.LinkIndex, s.Scope = a, "lo", 1, nethelpers.ScopeHost
				s.Family = family(a.Addr())
			})
	}
}

// loopback are the addresses of the loopback interface: its own and, when pods resolve names through the node, the one
// that they ask (Talos: controllers/network/hostdns_config.go).
func (n *node) loopback() []netip.Prefix {
	out := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")}

	cfg := n.config()
	if cfg == nil || cfg.NetworkHostDNSConfig() == nil {
		return out
	}

	if cfg.NetworkHostDNSConfig().ForwardKubeDNSToHost() {
		out = append(out, netip.MustParsePrefix(constants.HostDNSAddress+"/32"))
	}

	return out
}

func family(a netip.Addr) nethelpers.Family {
	if a.Is4() {
		return nethelpers.FamilyInet4
	}

	return nethelpers.FamilyInet6
}

// The metric that Talos gives routes for which the configuration has none.
const defaultMetric = 1024

// publishRoutes shows what the kernel makes of a link's addresses and gateways.
func (n *node) publishRoutes(b *board, index int, l link) {
	add := func(destination netip.Prefix, gateway netip.Addr, metric uint32, fill func(*network.RouteStatusSpec)) {
		of := destination.Addr()
		if gateway.IsValid() {
			of = gateway
		}

		id := network.RouteID(nethelpers.TableMain, family(of), destination, gateway, metric, l.name)

		show(b, network.NewRouteStatus(network.NamespaceName, id), func(s *network.RouteStatusSpec) {
			s.Family, s.Destination, s.Gateway, s.Priority = family(of), destination, gateway, metric
			s.OutLinkIndex, s.OutLinkName, s.Table, s.Type = uint32(index), l.name, nethelpers.TableMain, nethelpers.TypeUnicast
			fill(s)
		})
	}

	for _, a := range l.addresses {
		add(a.Masked(), netip.Addr{}, 0, func(s *network.RouteStatusSpec) {
			s.Source, s.Scope, s.Protocol = a.Addr(), nethelpers.ScopeLink, nethelpers.ProtocolKernel
		})
	}

	for _, gateway := range l.routes {
		add(netip.Prefix{}, gateway, defaultMetric, func(s *network.RouteStatusSpec) {
			s.Scope, s.Protocol = nethelpers.ScopeGlobal, nethelpers.ProtocolStatic
		})
	}
}

// publishResolvers follows Talos' layers: configuration, then platform, then a default.
func (n *node) publishResolvers(b *board) {
	servers := n.platformNetwork().resolvers

	if cfg := n.config(); cfg != nil {
		if r := cfg.NetworkResolverConfig(); r != nil && len(r.Resolvers()) > 0 {
			servers = nil
			for _, resolver := range r.Resolvers() {
				servers = append(servers, resolver.Addr)
			}
		}
	}

	if len(servers) == 0 {
		servers = []netip.Addr{
			netip.MustParseAddr(constants.DefaultPrimaryResolver),
			netip.MustParseAddr(constants.DefaultSecondaryResolver),
		}
	}

	show(b, network.NewResolverStatus(network.NamespaceName, network.ResolverID),
		func(s *network.ResolverStatusSpec) { s.DNSServers = servers })
}
