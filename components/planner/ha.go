package planner

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// haHost is a host with a priority.
var haHost = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*(:[0-9]{1,4})?$`)

// checkHA checks high availability: Proxmox VE keeps no rules that contradict each other.
func (r *resolver) checkHA(path string, p *pool, s spec.VMSpec) {
	if s.HA == nil {
		return
	}

	path += ".ha"
	priorities, named := map[string]bool{}, map[string]bool{}

	for i, entry := range s.HA.Hosts {
		host, priority, _ := strings.Cut(entry, ":")
		priorities[priority], named[host] = true, true

		// A node of its own has no list of hosts.
		if !haHost.MatchString(entry) || len(r.Spec.Proxmox.Hosts) > 0 && !r.HasHost(host) {
			r.Problems.Add(checks.At(path+".hosts", i), "must be a host of proxmox.hosts, with a priority if it has one", entry,
				"write it like pve1 or pve1:2")
		}
	}

	hosts, where := len(r.Spec.Proxmox.Hosts), "proxmox.hosts"
	if len(named) > 0 { // strict or not
		hosts, where = len(named), "ha.hosts"
	}

	switch {
	case s.HAGroup != nil && s.HA.Places():
		r.Problems.Add(path, "cannot be combined with haGroup: both determine where VMs run", *s.HAGroup, "leave "+
			"one of the two out")
	case s.HA.Strict && len(s.HA.Hosts) == 0:
		r.Problems.Add(path+".strict", "needs ha.hosts", "true", "name the hosts, or leave it out")
	case s.HA.Apart && len(priorities) > 1:
		r.Problems.Add(path+".apart", "cannot be kept on hosts with different priorities", strings.Join(s.HA.Hosts, ", "),
			"leave the priorities out, or ha.apart")
	case s.HA.Apart && hosts > 0 && len(p.members) > hosts:
		r.Problems.Add(path+".apart", fmt.Sprintf("needs a host for each node of the pool, and there are %d for %d",
			hosts, len(p.members)), "true", "add hosts to "+where+", or leave it out")
	}
}

// checkHARules checks that the nodes of a pool want the same of high availability: the pool has one rule for each.
func (r *resolver) checkHARules(p *pool) {
	of := func(m poolNode) *spec.HA { return p.vmDefaults.With(m.VMSpec).HA }

	var placed []poolNode

	for _, m := range p.members {
		if of(m).Places() {
			placed = append(placed, m)
		}
	}

	if len(placed) < 2 {
		return
	}

	// What a node states itself is compared with what the pool says, where another node has that.
	first := placed[max(0, slices.IndexFunc(placed, func(m poolNode) bool { return m.HA == nil }))]

	for _, m := range placed {
		if sameHA(of(m), of(first)) {
			continue
		}

		r.Problems.Add(m.path+".ha", "must be the same as that of "+first.path+", "+haText(of(first))+
			": a pool has one high-availability rule", haText(of(m)),
			"set the same for both, or give one of the two nodes another pool")
	}
}

// sameHA says that two say the same of where VMs run, whatever the order of the hosts.
func sameHA(a, b *spec.HA) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.Hosts)), slices.Sorted(slices.Values(b.Hosts))) &&
		a.Strict == b.Strict && a.Apart == b.Apart
}

// haText is as one writes it.
func haText(h *spec.HA) string {
	var all []string

	if len(h.Hosts) > 0 {
		all = append(all, "hosts: ["+strings.Join(h.Hosts, ", ")+"]")
	}

	if h.Strict {
		all = append(all, "strict: true")
	}

	if h.Apart {
		all = append(all, "apart: true")
	}

	return "{ " + strings.Join(all, ", ") + " }"
}
