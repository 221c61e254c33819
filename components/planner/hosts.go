package planner

import (
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/planner/placement"
	"talos-proxmox/components/spec"
)

// checkHosts holds names and numbers of the hosts, and that every host named elsewhere is one.
func (r *resolver) checkHosts() {
	seen := map[string]int{}

	for i, h := range r.Spec.Proxmox.Hosts {
		path := checks.At("proxmox.hosts", i)

		if !checks.IsLabel(strings.ToLower(h.Name)) {
			r.Problems.Add(path+".name", "must be the host's name as Proxmox VE shows it", h.Name, "correct it")
		} else if j, dup := seen[h.Name]; dup {
			r.Problems.Add(path+".name", "is named twice, also by "+checks.At("proxmox.hosts", j), h.Name, "remove one")
		}

		seen[h.Name] = i

		if c := h.Capacity; c != nil {
			r.checkResources(path+".capacity", *c)

			if c.VCPU == 0 || c.MemoryMiB == 0 {
				r.Problems.Add(path+".capacity", "needs vcpu and memoryMiB", "", "set both, or leave the capacity out")
			}
		}

		if h.Reserve != nil {
			r.checkResources(path+".reserve", *h.Reserve)

			if h.Capacity == nil {
				r.Problems.Add(path+".reserve", "has no meaning without a capacity", "",
					"set the capacity, or leave the reserve out")
			}
		}
	}

	r.checkResources("placement.reserve", r.Spec.Placement.Reserve)

	if len(r.Spec.Proxmox.Hosts) == 0 {
		r.Problems.Add("proxmox.hosts", "needs at least one host", "",
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

func (r *resolver) checkHost(path, name string, known map[string]int) {
	if _, ok := known[name]; name != "" && !ok {
		r.Problems.Add(path, "is not one of proxmox.hosts", name, "name one of them, or add it")
	}
}

func (r *resolver) checkResources(path string, given spec.Resources) {
	r.CheckBounds(path+".vcpu", given.VCPU, 0, 1_000_000)
	r.CheckBounds(path+".memoryMiB", given.MemoryMiB, 0, 1_000_000_000)
}

// configuredHost is the host that a node, or its pool, names; the only host there is needs no naming.
func (r *resolver) configuredHost(p *pool, m poolNode) string {
	switch {
	case m.Host != "":
		return m.Host
	case p.Host != "":
		return p.Host
	case len(r.Spec.Proxmox.Hosts) == 1:
		return r.Spec.Proxmox.Hosts[0].Name
	default:
		return ""
	}
}

// place chooses the host of each node, and returns what the hosts have then.
func (r *resolver) place() []plan.HostAllocation {
	pools := make([]*placement.Pool, 0, len(r.pools))

	for _, p := range r.pools {
		placed := &placement.Pool{
			Path: p.path, Role: p.Role, Host: p.Host, Planned: p.planned.Nodes,
			Profile:    spec.Resources{VCPU: *p.vmDefaults.Cores, MemoryMiB: *p.vmDefaults.MemoryMiB},
			Configured: make([]placement.Node, 0, len(p.members)),
		}

		for _, m := range p.members {
			placed.Configured = append(placed.Configured,
				placement.Node{Path: m.path, Host: m.Host, Pin: r.configuredHost(p, m)})
		}

		pools = append(pools, placed)
	}

	return placement.Place(&r.Checker, pools)
}
