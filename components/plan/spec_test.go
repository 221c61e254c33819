package plan

import (
	"fmt"
	"maps"
)

// small is the smallest spec that plans: one host, one template, one control plane.
func small() Spec {
	return Spec{
		Hosts: []Host{{Name: "pve"}},
		Cluster: Cluster{
			Name: "c", Versions: Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"},
		},
		Image:   Image{Source: Template, Template: TemplateImage{Control: "talos-v1.12.4-base", Worker: "talos-v1.12.4-base"}},
		Network: Network{CIDR: "10.0.0.0/8"},
		Pools:   map[string]Pool{"control": {Role: ControlPlane, Count: new(1), Addresses: "10.0.0.11-10.0.0.99"}},
	}
}

// with returns a copy of a spec with another pool.
func (s Spec) with(name string, p Pool) Spec {
	s.Pools = maps.Clone(s.Pools)
	s.Pools[name] = p

	return s
}

// on returns a copy of a spec with these hosts, each with vCPU and GiB; nothing of both is a host without a limit.
func (s Spec) on(capacities ...[2]int) Spec {
	s.Hosts = nil

	for i, c := range capacities {
		h := Host{Name: fmt.Sprintf("%c", 'a'+i)}
		if c != [2]int{} {
			h.Capacity = &Resources{VCPU: c[0], MemoryMiB: c[1] * 1024}
		}

		s.Hosts = append(s.Hosts, h)
	}

	return s
}

// sized is a shape of so many cores and GiB.
func sized(cores, gib int) Shape { return Shape{Cores: new(cores), MemoryMiB: new(gib * 1024)} }

// hostsOf are the hosts of a pool's nodes, in order.
func hostsOf(p *Plan, pool string) []string {
	var hosts []string

	for _, n := range p.Nodes() {
		if n.Pool == pool {
			hosts = append(hosts, n.Host)
		}
	}

	return hosts
}
