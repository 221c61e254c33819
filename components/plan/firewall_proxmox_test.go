package plan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"go4.org/netipx"
)

// TestServiceRules: clients may come to the addresses of Services, and to nothing else of the nodes.
func TestServiceRules(t *testing.T) {
	t.Parallel()

	p := PlannedPool{LoadBalancer: &PlannedLoadBalancer{
		Clients: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.7.0.1/32"), netip.MustParsePrefix("fd00::/64"),
		},
		Ranges: []netipx.IPRange{
			netipx.MustParseIPRange("10.0.0.200-10.0.0.204"), netipx.RangeOfPrefix(netip.MustParsePrefix("fd00::100/120")),
		},
	}}

	assert.Equal(t, []FirewallRule{
		{Protocol: "tcp", Sources: "10.0.0.0/24,10.7.0.1", Destinations: "10.0.0.200/30,10.0.0.204", Comment: "services"},
		{Protocol: "udp", Sources: "10.0.0.0/24,10.7.0.1", Destinations: "10.0.0.200/30,10.0.0.204", Comment: "services"},
		{Protocol: "tcp", Sources: "fd00::/64", Destinations: "fd00::100/120", Comment: "services"},
		{Protocol: "udp", Sources: "fd00::/64", Destinations: "fd00::100/120", Comment: "services"},
	}, p.FirewallRules())

	p.LoadBalancer.Clients = p.LoadBalancer.Clients[:2]
	assert.Len(t, p.FirewallRules(), 2, "addresses without clients of their family stay closed")
	assert.Empty(t, PlannedPool{}.FirewallRules())
}
