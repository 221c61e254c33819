package rehearsal

import (
	"maps"
	"net/netip"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/lab"
)

// growth is how many nodes a pool may gain during a rehearsal.
const growth = 8

// dhcp sets up what gives the nodes their addresses: reservations for those that have them configured, as an operator
// makes them, and leases for those whose address is not known before. Where addresses are static, there is no DHCP at
// all.
// Silent nodes get nothing.
func dhcp(c *lab.Config, p *plan.Plan, original config.Config, silent []string, toLab func(netip.Addr) netip.Addr) {
	c.Reservations = map[string]netip.Addr{}

	if p.Addressing == spec.AddressingStatic {
		return
	}

	reserve(c.Reservations, original, toLab)

	if p.Addressing != spec.AddressingReserved {
		c.DHCP = rest(p, toLab)
	}

	for _, n := range p.Nodes() {
		if slices.Contains(silent, n.Name) {
			c.Reservations[n.MAC] = netip.Addr{}
		}
	}
}

// reserve makes a reservation for every node, and for those that a larger pool would have.
func reserve(reservations map[string]netip.Addr, original config.Config, toLab func(netip.Addr) netip.Addr) {
	for _, n := range grown(original) {
		if n.Address.IsValid() {
			reservations[n.MAC] = toLab(n.Address)
		}
	}
}

// grown are the nodes, and those that a larger pool would have as far as the pool has room for them.
func grown(original config.Config) []plan.Node {
	var all []plan.Node

	for _, name := range slices.Sorted(maps.Keys(original.Pools)) {
		for more := range growth + 1 {
			larger := original
			larger.Pools = maps.Clone(original.Pools)
			pool := larger.Pools[name]

			if pool.Count != nil {
				pool.Count = new(*pool.Count + more)
			} else if more > 0 {
				break
			}

			larger.Pools[name] = pool

			p, err := larger.Plan()
			if err != nil {
				break
			}

			all = append(all, p.Nodes()...)
		}
	}

	return all
}

// rest is the upper half of the network without what the plan itself uses at its beginning.
func rest(p *plan.Plan, toLab func(netip.Addr) netip.Addr) lab.Range {
	first := p.Network.Masked().Addr().As4()
	last := first

	for bit := p.Network.Bits(); bit < 32; bit++ {
		last[bit/8] |= 1 << (7 - bit%8)

		if bit == p.Network.Bits() {
			first = last
		}
	}

	last[3]--

	r := lab.Range{From: netip.AddrFrom4(first), To: netip.AddrFrom4(last)}

	for _, a := range []netip.Addr{p.Gateway, p.VIP} {
		if a.IsValid() && !a.Less(r.From) && a.Less(r.To) {
			r.From = a.Next()
		}
	}

	return lab.Range{From: toLab(r.From), To: toLab(r.To)}
}
