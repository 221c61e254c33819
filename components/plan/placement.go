package plan

import (
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/spec"
)

// room is what is left of a host.
func (h *HostAllocation) room() spec.Resources {
	return spec.Resources{
		VCPU:      h.Capacity.VCPU - h.Reserve.VCPU - h.Used.VCPU - h.pinned.VCPU,
		MemoryMiB: h.Capacity.MemoryMiB - h.Reserve.MemoryMiB - h.Used.MemoryMiB - h.pinned.MemoryMiB,
	}
}

func (h *HostAllocation) fits(need spec.Resources) bool {
	left := h.room()

	return !h.Limited || need.VCPU <= left.VCPU && need.MemoryMiB <= left.MemoryMiB
}

// need of a node.
func (n *Node) need() spec.Resources { return spec.Resources{VCPU: n.Cores, MemoryMiB: n.MemoryMiB} }

// checkHosts holds names and numbers of the hosts, and that every host named elsewhere is one.
func (r *resolver) checkHosts() {
	seen := map[string]int{}

	for i, h := range r.spec.Proxmox.Hosts {
		path := at("proxmox.hosts", i)

		if !isLabel(strings.ToLower(h.Name)) {
			r.problems.Add(path+".name", "must be the host's name as Proxmox VE shows it", h.Name, "correct it")
		} else if j, dup := seen[h.Name]; dup {
			r.problems.Add(path+".name", "is named twice, also by "+at("proxmox.hosts", j), h.Name, "remove one")
		}

		seen[h.Name] = i

		if c := h.Capacity; c != nil {
			r.checkResources(path+".capacity", *c)

			if c.VCPU == 0 || c.MemoryMiB == 0 {
				r.problems.Add(path+".capacity", "needs vcpu and memoryMiB", "", "state both, or leave the capacity out")
			}
		}

		if h.Reserve != nil {
			r.checkResources(path+".reserve", *h.Reserve)

			if h.Capacity == nil {
				r.problems.Add(path+".reserve", "has no meaning without a capacity", "",
					"state the capacity, or leave the reserve out")
			}
		}
	}

	r.checkResources("placement.reserve", r.spec.Placement.Reserve)

	if len(r.spec.Proxmox.Hosts) == 0 {
		r.problems.Add("proxmox.hosts", "needs at least one host", "",
			"name it as Proxmox VE shows it, for example - name: pve")

		return
	}

	for _, p := range r.pools {
		r.checkHost(p.path+".host", p.Host, seen)

		for _, m := range p.members {
			r.checkHost(m.path+".host", m.Host, seen)
		}
	}
}

// hasHost says whether a host is one of proxmox.hosts.
func (r *resolver) hasHost(name string) bool {
	return slices.ContainsFunc(r.spec.Proxmox.Hosts, func(h spec.Host) bool { return h.Name == name })
}

func (r *resolver) checkHost(path, name string, known map[string]int) {
	if _, ok := known[name]; name != "" && !ok {
		r.problems.Add(path, "is none of proxmox.hosts", name, "name one of them, or add it")
	}
}

func (r *resolver) checkResources(path string, given spec.Resources) {
	r.checkBounds(path+".vcpu", given.VCPU, 0, 1_000_000)
	r.checkBounds(path+".memoryMiB", given.MemoryMiB, 0, 1_000_000_000)
}

// statedHost is the host that a node, or its pool, names; the only host there is needs no naming.
func (r *resolver) statedHost(p *pool, m poolNode) string {
	switch {
	case m.Host != "":
		return m.Host
	case p.Host != "":
		return p.Host
	case len(r.spec.Proxmox.Hosts) == 1:
		return r.spec.Proxmox.Hosts[0].Name
	default:
		return ""
	}
}

// place chooses the host of each node: control planes first, then workers pool by pool, in order. What nodes of other
// pools have pinned is not given away. It returns what the hosts have then.
func (r *resolver) place() []HostAllocation {
	hosts := make([]HostAllocation, len(r.spec.Proxmox.Hosts))
	index := make(map[string]int, len(hosts))

	for i, h := range r.spec.Proxmox.Hosts {
		hosts[i] = HostAllocation{Name: h.Name, Slots: -1}
		if h.Capacity != nil {
			hosts[i].Limited, hosts[i].Capacity, hosts[i].Reserve = true, *h.Capacity,
				valueOr(h.Reserve, r.spec.Placement.Reserve)
		}

		index[h.Name] = i
	}

	pl := &placer{resolver: r, hosts: hosts, index: index}

	for _, p := range r.pools {
		for i := range p.planned.Nodes {
			if at, ok := pl.pin(p, i); ok {
				hosts[at].reservePin(p.planned.Nodes[i], +1)
			}
		}

		pl.warnMoved(p)
	}

	if r.spec.Placement.Strategy == spec.StrategyPin {
		r.checkPinned()
	}

	if len(hosts) == 0 {
		return hosts
	}

	pl.placeControls()
	pl.countSlots()

	for _, p := range r.pools {
		if p.Role != spec.RoleControlPlane {
			pl.placeWorkers(p)
		}
	}

	if pl.missing > 0 {
		r.problems = append(r.problems, pl.problem())
	}

	return hosts
}

// checkPinned: with strategy pin nothing is left to chance, not even where there is one host only.
func (r *resolver) checkPinned() {
	for _, p := range r.pools {
		for _, m := range p.members {
			if p.Host != "" || m.Host != "" {
				continue
			}

			r.problems.Add(m.path+".host", `is required with placement.strategy "pin"`, "", "name one of proxmox.hosts")

			if m.path == p.path { // the same for all nodes of the pool
				break
			}
		}
	}
}

func (h *HostAllocation) reservePin(n Node, sign int) {
	h.pinned = h.pinned.Plus(spec.Resources{VCPU: sign * n.Cores, MemoryMiB: sign * n.MemoryMiB})

	if n.Role == spec.RoleControlPlane {
		h.pinnedControls += sign
	}
}

// warnMoved warns of nodes that high availability moves away from the host that the configuration names.
func (pl *placer) warnMoved(p *pool) {
	warned := map[string]bool{}

	for i, m := range p.members {
		path := m.path
		if m.Host == "" {
			path = p.path // the same for all nodes of the pool
		}

		host, pinned := pl.pin(p, i)
		if !pinned || warned[path] || slices.Contains(pl.preferred(&p.planned.Nodes[i]), host) {
			continue
		}

		warned[path] = true
		pl.warn(path+".host", "is none of the hosts that ha.hosts prefers: high availability moves the VM there once it is "+
			"made", pl.hosts[host].Name, "name one of those, or leave it out")
	}
}

// pin is the host that a node must have.
func (pl *placer) pin(p *pool, i int) (host int, ok bool) {
	host, ok = pl.index[pl.statedHost(p, p.members[i])]

	return host, ok
}

// take puts a node on a host.
func (pl *placer) take(n *Node, host int, fits bool) {
	h := &pl.hosts[host]
	n.Host = h.Name

	if n.Role == spec.RoleControlPlane {
		h.controls++
	} else {
		h.workers++
	}

	if fits {
		h.Used = h.Used.Plus(n.need())

		return
	}

	pl.missing++

	if pl.extra == nil {
		pl.extra = map[int]spec.Resources{}
	}

	pl.extra[host] = pl.extra[host].Plus(n.need())
}

// placeControls puts each control plane on the host with the fewest, the first of those in the order of the
// configuration. Two share a host only when there are fewer hosts than control planes.
func (pl *placer) placeControls() {
	var nodes []*Node

	pins, poolOf := map[*Node]int{}, map[*Node]*pool{}

	for _, p := range pl.pools {
		if p.Role != spec.RoleControlPlane {
			continue
		}

		for i := range p.planned.Nodes {
			n := &p.planned.Nodes[i]
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
			pl.take(n, host, pl.hosts[host].fits(n.need()))
			pinnedTo[host]++

			continue
		}

		hosts := pl.candidates(poolOf[n], n)
		host, fits := pl.fewestControls(n.need(), hosts, mayShare || len(nodes) > len(hosts))
		pl.take(n, host, fits)
	}

	for i := range pl.hosts {
		if h := &pl.hosts[i]; pinnedTo[i] > 1 && !mayShare && pl.missing == 0 {
			pl.warn("pools", "pin several control planes to one host, although there are enough hosts", h.Name, "pin them apart")
		}
	}
}

// preferred are the hosts that high availability keeps a node on while they are up: those of ha.hosts with the highest
// priority; all where it names none. A VM that is made elsewhere is moved at once.
func (pl *placer) preferred(n *Node) []int {
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
func (pl *placer) candidates(p *pool, n *Node) []int {
	preferred := pl.preferred(n)
	if n.HA == nil || !n.HA.Apart {
		return preferred
	}

	taken := map[int]bool{}

	for i := range p.planned.Nodes {
		other := &p.planned.Nodes[i]

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
	i := slices.IndexFunc(pl.pools, func(p *pool) bool {
		return p.Role != spec.RoleControlPlane &&
			len(p.planned.Nodes) > 0
	})
	if i < 0 {
		return
	}

	p := pl.pools[i]
	profile := spec.Resources{VCPU: *p.shape.Cores, MemoryMiB: *p.shape.MemoryMiB}

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
func (pl *placer) placeWorkers(p *pool) {
	queue := newSlots(pl.hosts)

	// Within the pool, pins are met in order like everything else: a node appended with a pin must move no other.
	for i := range p.planned.Nodes {
		if host, ok := pl.pin(p, i); ok {
			pl.hosts[host].reservePin(p.planned.Nodes[i], -1)
		}
	}

	profile := spec.Resources{VCPU: *p.shape.Cores, MemoryMiB: *p.shape.MemoryMiB}

	for i := range p.planned.Nodes {
		n := &p.planned.Nodes[i]

		if host, ok := pl.pin(p, i); ok {
			pl.take(n, host, pl.hosts[host].fits(n.need()))
			queue.taken(host)

			continue
		}

		host, found := pl.next(queue, n.need(), profile, pl.candidates(p, n))
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
