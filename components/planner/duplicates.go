package planner

import (
	"fmt"
	"net/netip"
	"regexp"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/planner/ranges"
)

// bdf is a PCI address as Proxmox VE writes it; without a function it means all of them.
var bdf = regexp.MustCompile(`^([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(\.[0-7])?$`)

// checkIdentity finds everything that two nodes share and must not, and what no node may have.
func (r *resolver) checkIdentity() {
	total := 0
	for _, p := range r.pools {
		total += len(p.planned.Nodes)
	}

	names := make(map[string]string, total)
	macs := make(map[string]string, total)
	addresses := make(map[netip.Addr]string, total)
	gpus := map[string]string{}

	for _, p := range r.pools {
		bad, twice := false, false

		for i, n := range p.planned.Nodes {
			m := p.members[i]

			if !bad && checks.IsLabel(r.Spec.Cluster.Name) && checks.IsLabel(p.name) && !checks.IsLabel(n.Name) {
				bad = true

				r.Problems.Add(p.path+".names", "must produce DNS labels of at most 63 characters", n.Name,
					"change the pattern, or the cluster's or the pool's name")
			}

			if other, dup := names[n.Name]; dup && !twice {
				twice = true

				r.Problems.Add(p.path+".names", "produces a name that pool "+other+" also produces", n.Name,
					"add {pool} to one of the two patterns")
			}

			names[n.Name] = n.Pool

			for _, nic := range n.NICs {
				r.clash(macs, nic.MAC, m.path+".mac", n.Name)
			}

			if m.Address != "" && n.Address.IsValid() {
				r.checkOwnAddress(p, m, n.Address)
			}

			if n.Address.IsValid() {
				if other, dup := addresses[n.Address]; dup && m.Address != "" {
					r.Problems.Add(m.path+".address", "is used twice: by "+other+" and by "+n.Name, n.Address.String(),
						r.suggest(n.Address))
				} else if !dup {
					addresses[n.Address] = n.Name
				}
			}

			if n.GPU != nil {
				r.checkGPU(gpus, p, m, n)
			}
		}
	}
}

// clash notes who has a MAC address and finds who had it before.
func (r *resolver) clash(seen map[string]string, value, path, node string) {
	if value == "" {
		return
	}

	if other, dup := seen[value]; dup && other != node {
		r.Problems.Add(path, "is used twice: by "+other+" and by "+node, value, "change one of the two")

		return
	}

	seen[value] = node
}

// checkOwnAddress holds an address that a node states: it must be free for it, and stay so when pools grow.
func (r *resolver) checkOwnAddress(p *pool, m poolNode, a netip.Addr) {
	path := m.path + ".address"

	switch rule := r.unusable(a); {
	case r.network.IsValid() && rule != "":
		r.Problems.Add(path, rule, a.String(), r.suggest(a))

		return
	case a == r.vip:
		r.Problems.Add(path, "must not be the virtual address", a.String(), r.suggest(a))

		return
	}

	for _, other := range r.pools {
		for _, s := range other.addresses {
			own, _ := p.addresses.Nth(m.ordinal, ranges.AddressCount, ranges.AddressAt)
			if !a.Less(s.First) && !s.Last.Less(a) && (other != p || own != a) {
				r.Problems.Add(path, "belongs to another node: "+other.path+".addresses holds it", a.String(), r.suggest(a))

				return
			}
		}
	}
}

// suggest names the next free address, without taking it.
func (r *resolver) suggest(after netip.Addr) string {
	if r.network.Contains(after) {
		if a, ok := r.freeAddressAfter(after); ok {
			return "the next free address is " + a.String()
		}
	}

	if r.network.IsValid() {
		if a, ok := r.freeAddressAfter(r.network.Addr()); ok {
			return "a free address is " + a.String()
		}
	}

	return nothingFree
}

const nothingFree = "choose another address"

// freeAddressAfter is the first address after another that is not taken.
func (r *resolver) freeAddressAfter(after netip.Addr) (netip.Addr, bool) {
	if r.configuredAddresses == nil {
		r.configuredAddresses = map[netip.Addr]bool{r.vip: true}

		for _, p := range r.pools {
			for _, m := range p.members {
				if a, err := netip.ParseAddr(m.Address); err == nil {
					r.configuredAddresses[a] = true
				}
			}
		}
	}

	for a := after.Next(); r.network.Contains(a); a = a.Next() {
		held := false

		for _, p := range r.pools {
			for _, s := range p.addresses {
				if !a.Less(s.First) && !s.Last.Less(a) {
					a, held = s.Last, true
				}
			}
		}

		if !held && !r.configuredAddresses[a] && r.unusable(a) == "" {
			return a, true
		}
	}

	return netip.Addr{}, false
}

// checkGPU holds the form of a GPU's address, and that a host's GPU belongs to one node.
func (r *resolver) checkGPU(seen map[string]string, p *pool, m poolNode, n plan.Node) {
	path := m.path + ".bdf"
	form := bdf.FindStringSubmatch(n.GPU.BDF)

	if form == nil {
		r.Problems.Add(path, "must be a PCI address, dddd:bb:dd.f or dddd:bb:dd, in lower case", n.GPU.BDF,
			"write it like 0000:01:00.0, as lspci -D does")

		return
	}

	host := r.configuredHost(p, m)
	if host == "" {
		r.Problems.Add(m.path+".host", "is required: a GPU is in a host", "", "name the host that has "+n.GPU.BDF)

		return
	}

	// All functions of a device and one of them cannot go to two nodes.
	device := host + " " + form[1]
	clashes := []string{device + form[2], device}

	if form[2] == "" {
		for f := range 8 {
			clashes = append(clashes, fmt.Sprintf("%s.%d", device, f))
		}
	}

	for _, key := range clashes {
		if other, dup := seen[key]; dup {
			r.Problems.Add(path, "is used twice on host "+host+": also by "+other, n.GPU.BDF, "change one of the two")

			break
		}
	}

	seen[device+form[2]] = n.Name

	if n.GPU.Raw && !r.Spec.Provided.RootPassword {
		r.Problems.Add(m.path+".raw",
			"needs proxmox.username root@pam with proxmoxPassword: Proxmox VE lets no other user pass a device by its address",
			"true", "leave it out: a resource mapping is made")
	}
}

// altRemedy adds a second remedy, where there is one.
func altRemedy(remedy string) string {
	if remedy == nothingFree {
		return ""
	}

	return "; " + remedy
}
