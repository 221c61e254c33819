package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/spec"
)

// checkAddressConflicts checks that no machine answers at the addresses of nodes that are yet to be made, nor the
// virtual one of a cluster that is.
func (c *checker) checkAddressConflicts(ctx context.Context) error {
	type use struct {
		address netip.Addr
		path    string
		by      string
		pool    string
	}

	var (
		uses    []use
		running bool // a control plane
	)

	for _, n := range c.Plan.Nodes() {
		switch absent := c.Absent[n.VMID]; {
		case absent && n.Address.IsValid():
			uses = append(uses, use{n.Address, "pools." + n.Pool + ".addresses", n.Name, n.Pool})
		case !absent && n.Role == spec.RoleControlPlane:
			running = true
		}
	}

	if c.Plan.VIP.IsValid() && !running {
		uses = append(uses, use{c.Plan.VIP, "cluster.endpoint.address", "the virtual address", ""})
	}

	ports, free := make([]int, len(uses)), make(chan struct{}, maxProbes)

	var asked sync.WaitGroup
	for i, u := range uses {
		free <- struct{}{}

		asked.Go(func() {
			ports[i] = c.network.Listening(ctx, u.address)
			<-free
		})
	}

	asked.Wait()

	for i, u := range uses {
		if ports[i] != 0 {
			c.Problems.Add(u.path, fmt.Sprintf("%s is to be %s, and a machine answers there already, on port %d", u.address,
				u.by, ports[i]), "", "find out which machine has it, or choose another address"+
				c.freeAddress(ctx, u.address, u.pool)+
				"; a node of a former cluster may still be running")
		}
	}

	return ctx.Err()
}

// maxProbes is how many addresses are tried at the same time.
const maxProbes = 128

// maxFreeProbes bounds how many addresses are tried to offer one.
const maxFreeProbes = 16

// freeAddress offers the next address of the network that no node has, no other pool may, and at which no machine
// answers; empty: there is none nearby. Each is offered once.
func (c *checker) freeAddress(ctx context.Context, after netip.Addr, pool string) string {
	others := checks.OtherRanges(c.Plan, pool, func(p plan.PlannedPool) []plan.Span[netip.Addr] { return p.Addresses })
	taken := map[netip.Addr]bool{c.Plan.Gateway: true, c.Plan.VIP: true}
	for _, n := range c.Plan.Nodes() {
		taken[n.Address] = true
	}

	for probes := 0; probes < maxFreeProbes; {
		after = after.Next()
		// The last address of an IPv4 network is its broadcast address.
		if !c.Plan.Network.Contains(after) || after.Is4() && !c.Plan.Network.Contains(after.Next()) {
			return ""
		}

		if i := slices.IndexFunc(others, func(s plan.Span[netip.Addr]) bool {
			return !after.Less(s.First) && !s.Last.Less(after)
		}); i >= 0 {
			after = others[i].Last

			continue
		}

		if taken[after] || c.offered[after] {
			continue
		}

		if probes++; c.network.Listening(ctx, after) == 0 {
			c.offered[after] = true

			return fmt.Sprintf(" (the next one at which no machine answers is %s)", after)
		}
	}

	return ""
}
