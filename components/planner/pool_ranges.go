package planner

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/planner/ranges"
	"talos-proxmox/components/spec"
)

// firstVMIDs of the pools that state none; they may have as many nodes as there is room before the next hundred.
var firstVMIDs = map[string]int{"control_plane": 401, "workers": 501, "gpu_workers": 601}

const defaultVMIDs = 99

// checkPool checks what a pool is by itself, and reads its ranges.
func (r *resolver) checkPool(p *pool) {
	if !checks.IsLabel(p.name) {
		r.Problems.Add(p.path, "must be a DNS label: lower case letters, digits and dashes", p.name, "rename the pool")
	}

	checks.OneOf(&r.Problems, p.path+".role", p.Role, spec.RoleControlPlane, spec.RoleWorker)
	r.checkNodesOf(p)

	// The name of an only node may be any: clusters that others made have such.
	if len(p.members) > 1 && p.Names != "" && !newNamer(p.Names, "", "").numbered() {
		r.Problems.Add(p.path+".names", "must hold the node's number", p.Names, "add {n}, {nn} or {nnn}")
	}

	r.vmidsOf(p)
	r.addressesOf(p)
}

// checkNodesOf: a pool says in one way which nodes it has.
func (r *resolver) checkNodesOf(p *pool) {
	var ways []string

	if p.Count != nil {
		ways = append(ways, "count")
	}

	if p.Nodes != nil {
		ways = append(ways, "nodes")
	}

	if p.GPUs != nil {
		ways = append(ways, "gpus")
	}

	switch {
	case len(ways) == 0:
		r.Problems.Add(p.path, "needs one of count, nodes and gpus", "", "set the number of nodes, for example count: 1")
	case len(ways) > 1:
		r.Problems.Add(p.path, "takes only one of count, nodes and gpus", strings.Join(ways, ", "), "leave the others out")
	}
}

// vmidsOf reads the VMIDs that belong to a pool, whether nodes use them yet or not.
func (r *resolver) vmidsOf(p *pool) {
	path, given := p.path+".vmids", string(p.VMIDs)

	if given == "" {
		group := p.planned.Group()
		first := firstVMIDs[group]

		for _, other := range r.pools {
			if other != p && other.VMIDs == "" && other.planned.Group() == group {
				r.Problems.Add(path, "is required: only one pool of each kind may leave it out, and "+other.name+" does too", "",
					"set a range, for example "+r.suggestVMIDs(first+300).String())

				return
			}
		}

		p.vmids = ranges.Intervals[int]{{First: first, Last: first + defaultVMIDs - 1}}
		given = p.vmids[0].String() + ", the default"
	} else {
		found, ok := ranges.ParseNumbers(p.VMIDs)

		switch {
		case !ok:
			r.Problems.Add(path, "must be a VMID or a range of VMIDs", given, "write it like 401-449")

			return
		case slices.ContainsFunc(found, func(s ranges.Interval[int]) bool {
			return s.First < ranges.MinVMID || s.Last > ranges.MaxVMID
		}):
			r.Problems.Add(path, fmt.Sprintf("must lie in %d-%d, which is what Proxmox VE accepts", ranges.MinVMID,
				ranges.MaxVMID), given,
				"choose a range inside it")

			return
		}

		p.vmids = found
	}

	r.checkRoom(path, "VMID", p, p.vmids.Room(ranges.VMIDCount), given, nil)
}

// suggestVMIDs is a range, from the given VMID on, that no pool has. Each is suggested once.
func (r *resolver) suggestVMIDs(first int) ranges.Interval[int] {
	suggested := ranges.Interval[int]{First: first, Last: first + defaultVMIDs - 1}
	taken := slices.Clone(r.suggestedVMIDs)

	for _, p := range r.pools {
		found, _ := ranges.ParseNumbers(p.VMIDs)
		taken = append(taken, found...)
	}

	for slices.ContainsFunc(taken, func(s ranges.Interval[int]) bool {
		return s.First <= suggested.Last && suggested.First <= s.Last
	}) {
		suggested = ranges.Interval[int]{First: suggested.First + 100, Last: suggested.Last + 100}
	}

	r.suggestedVMIDs = append(r.suggestedVMIDs, suggested)

	return suggested
}

// addressesOf reads the addresses that belong to a pool.
func (r *resolver) addressesOf(p *pool) {
	path, given := p.path+".addresses", string(p.Addresses)
	own := func(m poolNode) bool { return m.Address != "" }
	addressing := r.Spec.Network.Addressing

	switch {
	case addressing == spec.AddressingAgent:
		if given != "" || slices.ContainsFunc(p.members, own) {
			r.Problems.Add(path, `are read from the guest agent: network.addressing is "agent"`, given,
				"leave them out, or choose another addressing")
		}

		return
	case given == "":
		if addressing != spec.AddressingReported && !allOf(p.members, own) {
			r.Problems.Add(path, fmt.Sprintf("is required with addressing %q", addressing), "",
				"list one address per node, for example 10.0.0.11-10.0.0.13")
		}

		return
	}

	found, ok := ranges.ParseAddresses(p.Addresses)
	if !ok {
		r.Problems.Add(path, "must be an address or a range of addresses", given, "write it like 10.0.0.11-10.0.0.13")

		return
	}

	p.addresses = found
	r.checkRoom(path, "address", p, found.Room(ranges.AddressCount), given, own)
}

// checkRoom finds the first node that a range has no value for. Nodes that have one of their own need none.
func (r *resolver) checkRoom(path, noun string, p *pool, room uint64, value string, own func(poolNode) bool) {
	for _, m := range p.members {
		if uint64(m.ordinal) <= room || own != nil && own(m) { //nolint:gosec // ordinals are above zero
			continue
		}

		rule := fmt.Sprintf("has room for %d of the pool's %s", room, plan.Count(len(p.members), "node"))
		if p.Count == nil {
			rule = fmt.Sprintf("has no %s for node %d: it holds %d", noun, m.ordinal, room)
		}

		r.Problems.Add(path, rule, value, "make the range longer or the pool smaller")

		return
	}
}

// ownedRange is a span of values that belong to a pool, for good.
type ownedRange[T any] struct {
	ranges.Interval[T]
	path string
}

// checkRanges finds ranges that overlap, whether nodes use the common part yet or not, and addresses no node may have.
func (r *resolver) checkRanges() {
	var (
		vmids     []ownedRange[int]
		addresses []ownedRange[netip.Addr]
	)

	for _, p := range r.pools {
		for _, s := range p.vmids {
			vmids = append(vmids, ownedRange[int]{s, p.path + ".vmids"})
		}

		for _, s := range p.addresses {
			addresses = append(addresses, ownedRange[netip.Addr]{s, p.path + ".addresses"})
		}
	}

	overlaps(r, vmids, "VMID", cmp.Compare[int], func(v int) (int, bool) { return v + 1, v < ranges.MaxVMID },
		func(s ranges.Interval[int], first int) int {
			return ranges.VMIDAt(ranges.Interval[int]{First: first}, ranges.VMIDCount(s)-1)
		})

	overlaps(r, addresses, "address", netip.Addr.Compare, func(a netip.Addr) (netip.Addr, bool) {
		for a = a.Next(); a.IsValid() && (a == r.gateway || a == r.vip); {
			a = a.Next()
		}

		return a, a.IsValid() && (!r.network.IsValid() || r.unusable(a) == "")
	}, func(s ranges.Interval[netip.Addr], first netip.Addr) netip.Addr {
		return ranges.AddressAt(ranges.Interval[netip.Addr]{First: first}, ranges.AddressCount(s)-1)
	})

	for _, p := range r.pools {
		r.checkTemplateVMID(p, vmids)
	}

	if rule := r.unusable(r.vip); r.vip.IsValid() && r.network.IsValid() && rule != "" {
		r.Problems.Add("cluster.endpoint.address", rule, r.vip.String(), r.suggest(r.vip))
	}

	for _, h := range addresses {
		r.checkSpan(h)
	}
}

// checkTemplateVMID: a pool would grow into the VMID of a template.
func (r *resolver) checkTemplateVMID(p *pool, vmids []ownedRange[int]) {
	id, err := strconv.Atoi(p.planned.Image.Template)
	if err != nil {
		return
	}

	for _, h := range vmids {
		if h.First <= id && id <= h.Last {
			r.addProblemOnce(p.planned.Image.Path, "is a VMID of "+h.path+" "+h.String()+", which are reserved for nodes",
				strconv.Itoa(id), "choose a range without it, or give the template another VMID")
		}
	}
}

// overlaps reports each holding that shares values with one before it. next is the value after another that a node may
// have, last the end of a range as long as another that begins elsewhere.
func overlaps[T any](r *resolver, all []ownedRange[T], noun string, compare func(a, b T) int, next func(T) (T, bool),
	last func(ranges.Interval[T], T) T,
) {
	byFirst := func(a, b ownedRange[T]) int { return compare(a.First, b.First) }
	taken := slices.SortedStableFunc(slices.Values(all), byFirst)
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, byFirst)

	for i := 1; i < len(sorted); i++ {
		// Of the holdings before, the one that reaches furthest.
		before := sorted[i-1]
		if compare(sorted[i].First, before.Last) > 0 {
			continue
		}

		h := sorted[i]
		remedy := "choose another range"

		if free, ok := nextFree(taken, before.Last, compare, next); ok {
			remedy = fmt.Sprintf("the next free %s is %v", noun, free)
			// Another range is not told the same.
			taken = append(taken, ownedRange[T]{Interval: ranges.Interval[T]{First: free, Last: last(h.Interval, free)}})
			slices.SortStableFunc(taken, byFirst)
		}

		r.Problems.Add(h.path, "overlaps "+before.path+" "+before.String(), h.String(), remedy)

		if compare(before.Last, h.Last) > 0 {
			sorted[i].Last, sorted[i].path = before.Last, before.path
		}
	}
}

// nextFree is the first value after another that no holding has.
func nextFree[T any](sorted []ownedRange[T], after T, compare func(a, b T) int, next func(T) (T, bool)) (T, bool) {
	free, ok := next(after)

	for _, h := range sorted {
		if ok && compare(h.First, free) <= 0 && compare(free, h.Last) <= 0 {
			free, ok = next(h.Last)
		}
	}

	return free, ok
}

// checkSpan finds the addresses in a span that no node may have. One that is not in use yet counts too: the pool
// could not grow past it.
func (r *resolver) checkSpan(h ownedRange[netip.Addr]) {
	inside := func(a netip.Addr) bool { return a.IsValid() && !a.Less(h.First) && !h.Last.Less(a) }

	if inside(r.vip) {
		r.Problems.Add("cluster.endpoint.address", "must lie outside every range; "+h.path+" holds it", r.vip.String(),
			"choose another range, or another address: "+r.suggest(r.vip))
	}

	if !r.network.IsValid() {
		return
	}

	if !r.network.Contains(h.First) || !r.network.Contains(h.Last) {
		r.Problems.Add(h.path, "must lie inside network.cidr "+r.network.String(), h.String(), "move the range")

		return
	}

	var wrong []netip.Addr

	for _, a := range []netip.Addr{r.network.Addr(), r.gateway, r.broadcast()} {
		if inside(a) && r.unusable(a) != "" {
			wrong = append(wrong, a)
		}
	}

	slices.SortFunc(wrong, netip.Addr.Compare)

	for _, a := range slices.Compact(wrong) {
		r.Problems.Add(h.path, strings.Replace(r.unusable(a), "must not be", "must not hold", 1)+" "+a.String(), h.String(),
			without(h.Interval, wrong)+altRemedy(r.suggest(h.Last)))
	}
}

// without is a remedy: the span without some of its addresses, which are sorted.
func without(s ranges.Interval[netip.Addr], wrong []netip.Addr) string {
	var left []string

	for _, a := range wrong {
		if s.First.Less(a) {
			left = append(left, ranges.Interval[netip.Addr]{First: s.First, Last: a.Prev()}.String())
		}

		s.First = a.Next()
	}

	if s.First.IsValid() && !s.Last.Less(s.First) {
		left = append(left, s.String())
	}

	if left == nil {
		return "choose another range"
	}

	return "write " + strings.Join(left, ", ")
}
