// Package placement chooses the host of each node: control planes apart, workers evenly, as far as hosts have room.
package placement

import (
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// Place chooses the host of each node: control planes first, then workers pool by pool, in order. What nodes of
// other pools have pinned is not given away. It returns what the hosts have then.
func Place(c *checks.Checker, pools []*Pool) []plan.HostAllocation {
	pl := newPlacer(c, pools)
	pl.place()

	all := make([]plan.HostAllocation, len(pl.hosts))
	for i, h := range pl.hosts {
		all[i] = h.HostAllocation
	}

	return all
}

func newPlacer(c *checks.Checker, pools []*Pool) *placer {
	hosts := make([]host, len(c.Spec.Proxmox.Hosts))
	index := make(map[string]int, len(hosts))

	for i, h := range c.Spec.Proxmox.Hosts {
		hosts[i].Name, hosts[i].Slots = h.Name, -1
		if h.Capacity != nil {
			hosts[i].Limited, hosts[i].Capacity, hosts[i].Reserve = true, *h.Capacity, c.Spec.Placement.Reserve
			if h.Reserve != nil {
				hosts[i].Reserve = *h.Reserve
			}
		}

		index[h.Name] = i
	}

	return &placer{Checker: c, pools: pools, hosts: hosts, index: index}
}

func (pl *placer) place() {
	for _, p := range pl.pools {
		for i := range p.Planned {
			if at, ok := pl.pin(p, i); ok {
				pl.hosts[at].reservePin(p.Planned[i], +1)
			}
		}

		pl.warnMoved(p)
	}

	if pl.Spec.Placement.Strategy == spec.StrategyPin {
		pl.checkPinned()
	}

	if len(pl.hosts) == 0 {
		return
	}

	pl.placeControls()
	pl.countSlots()

	for _, p := range pl.pools {
		if p.Role != spec.RoleControlPlane {
			pl.placeWorkers(p)
		}
	}

	if pl.missing > 0 {
		pl.Problems = append(pl.Problems, pl.problem())
	}
}

// checkPinned: with strategy pin nothing is left to chance, not even where there is one host only.
func (pl *placer) checkPinned() {
	for _, p := range pl.pools {
		for _, m := range p.Configured {
			if p.Host != "" || m.Host != "" {
				continue
			}

			pl.Problems.Add(m.Path+".host", `is required with placement.strategy "pin"`, "", "name one of proxmox.hosts")

			if m.Path == p.Path { // the same for all nodes of the pool
				break
			}
		}
	}
}

// warnMoved warns of nodes that high availability moves away from the host that the configuration names.
func (pl *placer) warnMoved(p *Pool) {
	warned := map[string]bool{}

	for i, m := range p.Configured {
		path := m.Path
		if m.Host == "" {
			path = p.Path // the same for all nodes of the pool
		}

		host, pinned := pl.pin(p, i)
		if !pinned || warned[path] || slices.Contains(pl.preferred(&p.Planned[i]), host) {
			continue
		}

		warned[path] = true
		pl.Warn(path+".host", "is not one of the hosts that ha.hosts prefers: high availability moves the VM there "+
			"once it is "+
			"made", pl.hosts[host].Name, "name one of those, or leave it out")
	}
}

// pin is the host that a node must have.
func (pl *placer) pin(p *Pool, i int) (host int, ok bool) {
	host, ok = pl.index[p.Configured[i].Pin]

	return host, ok
}

// take puts a node on a host.
func (pl *placer) take(n *plan.Node, host int, fits bool) {
	h := &pl.hosts[host]
	n.Host = h.Name

	if n.Role == spec.RoleControlPlane {
		h.controls++
	} else {
		h.workers++
	}

	if fits {
		h.Used = h.Used.Plus(needOf(n))

		return
	}

	pl.missing++

	if pl.extra == nil {
		pl.extra = map[int]spec.Resources{}
	}

	pl.extra[host] = pl.extra[host].Plus(needOf(n))
}

// placeControls puts each control plane on the host with the fewest, the first of those in the order of the
// configuration. Two share a host only when there are fewer hosts than control planes.
func (pl *placer) placeControls() {
	var nodes []*plan.Node

	pins, poolOf := map[*plan.Node]int{}, map[*plan.Node]*Pool{}

	for _, p := range pl.pools {
		if p.Role != spec.RoleControlPlane {
			continue
		}

		for i := range p.Planned {
			n := &p.Planned[i]
			nodes, poolOf[n] = append(nodes, n), p

			if host, ok := pl.pin(p, i); ok {
				pins[n] = host
			}
		}
	}

	mayShare := len(nodes) > len(pl.hosts)
	pinnedTo := map[int]int{}

	for _, n := range nodes {
		host, pinned := pins[n]
		if pinned {
			pl.hosts[host].reservePin(*n, -1)
			pl.take(n, host, pl.hosts[host].fits(needOf(n)))
			pinnedTo[host]++

			continue
		}

		hosts := pl.candidates(poolOf[n], n)
		host, fits := pl.fewestControls(needOf(n), hosts, mayShare || len(nodes) > len(hosts))
		pl.take(n, host, fits)
	}

	for i := range pl.hosts {
		if h := &pl.hosts[i]; pinnedTo[i] > 1 && !mayShare && pl.missing == 0 {
			pl.Warn("pools", "pin several control planes to one host, although there are enough hosts", h.Name, "pin them apart")
		}
	}
}

// preferred are the hosts that high availability keeps a node on while they are up: those of ha.hosts with the highest
// priority; all where it names none. A VM that is made elsewhere is moved at once.
func (pl *placer) preferred(n *plan.Node) []int {
	var (
		hosts   []int
		highest = -1
	)

	if n.HA != nil {
		for _, entry := range n.HA.Hosts {
			name, text, _ := strings.Cut(entry, ":")
			priority, _ := strconv.Atoi(text) // none counts as 0

			host, there := pl.index[name]

			switch {
			case !there || priority < highest:
				continue
			case priority > highest:
				hosts, highest = nil, priority
			}

			hosts = append(hosts, host)
		}
	}

	if hosts == nil {
		return pl.all()
	}

	slices.Sort(hosts)

	return hosts
}

// candidates are the hosts that a node may be placed on: the preferred ones, without those of other nodes of its pool
// where high availability keeps them apart. That there are too few is reported elsewhere.
func (pl *placer) candidates(p *Pool, n *plan.Node) []int {
	preferred := pl.preferred(n)
	if n.HA == nil || !n.HA.Apart {
		return preferred
	}

	taken := map[int]bool{}

	for i := range p.Planned {
		other := &p.Planned[i]

		host, is := pl.index[other.Host]
		if !is {
			host, is = pl.pin(p, i)
		}

		if is && other != n {
			taken[host] = true
		}
	}

	if free := slices.DeleteFunc(slices.Clone(preferred), func(h int) bool { return taken[h] }); len(free) > 0 {
		return free
	}

	return preferred
}

// all are all hosts.
func (pl *placer) all() []int {
	hosts := make([]int, len(pl.hosts))
	for i := range hosts {
		hosts[i] = i
	}

	return hosts
}

// fewestControls is the host of some for a control plane; fits is false when none has room for it.
func (pl *placer) fewestControls(need spec.Resources, hosts []int, mayShare bool) (host int, fits bool) {
	best, bestAny := -1, hosts[0]
	number := func(i int) int { return pl.hosts[i].controls + pl.hosts[i].pinnedControls }

	for _, i := range hosts {
		if number(i) < number(bestAny) {
			bestAny = i
		}

		if pl.hosts[i].fits(need) && (mayShare || number(i) == 0) && (best < 0 || number(i) < number(best)) {
			best = i
		}
	}

	if best < 0 {
		return bestAny, false
	}

	return best, true
}

// countSlots divides what is left of each host by the first pool of workers' profile: the smaller of vCPU and memory.
func (pl *placer) countSlots() {
	i := slices.IndexFunc(pl.pools, func(p *Pool) bool {
		return p.Role != spec.RoleControlPlane &&
			len(p.Planned) > 0
	})
	if i < 0 {
		return
	}

	p := pl.pools[i]
	profile := p.Profile

	for i := range pl.hosts {
		if h := &pl.hosts[i]; h.Limited && profile.VCPU > 0 && profile.MemoryMiB > 0 {
			left := spec.Resources{VCPU: h.Capacity.VCPU, MemoryMiB: h.Capacity.MemoryMiB}.Minus(h.Reserve).Minus(h.Used)
			h.Slots = max(0, min(left.VCPU/profile.VCPU, left.MemoryMiB/profile.MemoryMiB))
		}
	}
}

// placeWorkers assigns the workers of a pool, in order, to the hosts' slots, interleaved: the first slot of each host,
// then the second of each, and so on, passing over hosts that are full. Slots are taken rather than listed, which is
// the same for workers of one profile and right for others.
func (pl *placer) placeWorkers(p *Pool) {
	queue := newSlots(pl.hosts)

	// Within the pool, pins are met in order like everything else: a node appended with a pin must move no other.
	for i := range p.Planned {
		if host, ok := pl.pin(p, i); ok {
			pl.hosts[host].reservePin(p.Planned[i], -1)
		}
	}

	profile := p.Profile

	for i := range p.Planned {
		n := &p.Planned[i]

		if host, ok := pl.pin(p, i); ok {
			pl.take(n, host, pl.hosts[host].fits(needOf(n)))
			queue.taken(host)

			continue
		}

		host, found := pl.next(queue, needOf(n), profile, pl.candidates(p, n))
		pl.take(n, host, found)
		queue.taken(host)
	}
}

// next is the host of the next slot of some hosts that a worker fits in. A host without room for the pool's profile
// leaves the queue.
func (pl *placer) next(queue *slots, need, profile spec.Resources, hosts []int) (host int, found bool) {
	var passed []int

	for host = -1; queue.Len() > 0 && host < 0; {
		first := queue.first()

		switch {
		case pl.hosts[first].fits(need) && slices.Contains(hosts, first):
			host = first
		case pl.hosts[first].fits(profile):
			passed = append(passed, first)

			fallthrough
		default:
			queue.remove(first)
		}
	}

	for _, h := range passed {
		queue.add(h)
	}

	if host >= 0 {
		return host, true
	}

	// A smaller node may fit where the pool's profile does not.
	for _, i := range hosts {
		if pl.hosts[i].fits(need) && (host < 0 || pl.hosts[i].workers < pl.hosts[host].workers) {
			host = i
		}
	}

	if host >= 0 {
		return host, true
	}

	// Nothing has room: count it where it would go if capacity were no matter.
	for _, i := range hosts {
		if host < 0 || pl.hosts[i].workers < pl.hosts[host].workers {
			host = i
		}
	}

	return host, false
}
