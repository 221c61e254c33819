package preflight

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
)

// TestFreeAddress: what is offered as free belongs to no other pool, whose nodes would want it later.
func TestFreeAddress(t *testing.T) {
	t.Parallel()

	span := func(first, last string) []plan.Span[netip.Addr] {
		return []plan.Span[netip.Addr]{{First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last)}}
	}
	c := newChecker(&plan.Plan{
		Network: netip.MustParsePrefix("10.0.0.0/24"),
		Pools: []plan.PlannedPool{
			{Name: "control", Addresses: span("10.0.0.11", "10.0.0.13")},
			{Name: "worker", Addresses: span("10.0.0.14", "10.0.0.99")},
		},
	}, nil, quietNetwork{})

	after := netip.MustParseAddr("10.0.0.13")
	assert.Contains(t, c.freeAddress(t.Context(), after, "control"), "10.0.0.100)")
	assert.Contains(t, c.freeAddress(t.Context(), after, ""), "10.0.0.101)")
}
