package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go4.org/netipx"

	"talos-proxmox/components/spec"
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

// TestLongLists: a rule of Proxmox VE holds 15 numbers of ports, and 512 characters of addresses.
func TestLongLists(t *testing.T) {
	t.Parallel()

	var (
		ports    []Ports
		from     []netip.Prefix
		services []netipx.IPRange
	)

	for i := range uint16(16) {
		ports = append(ports, Ports{First: 1000 + 10*i, Last: 1000 + 10*i})
	}

	ports[14].Last++ // with the one before, 16 numbers

	for i := range 40 {
		from = append(from, netip.MustParsePrefix(fmt.Sprintf("10.100.%d.0/24", 100+i))) // 16 characters with the comma
		services = append(services, netipx.MustParseIPRange(fmt.Sprintf("10.200.%d.1-10.200.%d.1", 100+i, 100+i)))
	}

	p := PlannedPool{
		Ingress: []Ingress{
			{Name: "open-a", Protocol: spec.ProtocolTCP, Ports: ports, From: from},
			{Name: "open-b", Protocol: spec.ProtocolTCP, Ports: ports[:14], From: from[:34]},
			{Name: "icmp", Protocol: spec.ProtocolICMP, From: from[:1]},
		},
		LoadBalancer: &PlannedLoadBalancer{Clients: from[:35], Ranges: services},
	}

	rules := p.FirewallRules()

	for _, r := range rules {
		require.LessOrEqual(t, len(r.Sources), 512)
		require.LessOrEqual(t, len(r.Destinations), 512)
		require.LessOrEqual(t, len(strings.FieldsFunc(r.Ports, func(r rune) bool { return r == ',' || r == ':' })), 15)
	}

	const first, second = "1000,1010,1020,1030,1040,1050,1060,1070,1080,1090,1100,1110,1120,1130", "1140:1141,1150"

	var got [][3]string
	for _, r := range rules[:6] {
		got = append(got, [3]string{r.Comment, r.Ports, r.Sources[:len("10.100.100.0/24")]})
	}

	assert.Equal(t, [][3]string{
		{"open-a", first, "10.100.100.0/24"},
		{"open-a", second, "10.100.100.0/24"},
		{"open-a", first, "10.100.132.0/24"},
		{"open-a", second, "10.100.132.0/24"},
		{"open-b", first, "10.100.100.0/24"},
		{"open-b", first, "10.100.132.0/24"},
	}, got)
	assert.Equal(t, FirewallRule{Protocol: "icmp", Sources: "10.100.100.0/24", Comment: "icmp"}, rules[6])

	// Each client reaches each address, by either protocol.
	reached := map[string]bool{}

	for _, r := range rules[7:] {
		for _, from := range strings.Split(r.Sources, ",") {
			for _, to := range strings.Split(r.Destinations, ",") {
				reached[r.Protocol+" "+from+" "+to] = true
			}
		}
	}

	assert.Len(t, rules[7:], 8)
	assert.Len(t, reached, 2*35*40)
}

// TestWritesRule: rules with other comments, and without one, are others'.
func TestWritesRule(t *testing.T) {
	for comment, want := range map[string]bool{
		"": false, "my ssh": false, "etcd backup": false, "opened": false, "etcd": true, "open-web": true, "services": true,
	} {
		assert.Equal(t, want, WritesRule(comment), comment)
	}
}
