package planner

import (
	"fmt"
	"maps"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// small is the smallest spec that plans: one host, one template, one control plane.
// draft is a Spec that tests put together.
type draft spec.Spec

func small() draft {
	return draft{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "pve"}}},
		Cluster: spec.Cluster{
			Name: "c", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"},
		},
		Image: spec.Image{
			Source:   spec.SourceTemplate,
			Template: spec.TemplateImage{Control: "talos-v1.12.4-base", Worker: "talos-v1.12.4-base"},
		},
		Network: spec.Network{CIDR: "10.0.0.0/8"},
		Pools: map[string]spec.Pool{"control": {
			Role: spec.RoleControlPlane, Count: new(1),
			Addresses: "10.0.0.11-10.0.0.99",
		}},
	}
}

// with returns a copy of a spec with another pool.
func (s draft) with(name string, p spec.Pool) draft {
	s.Pools = maps.Clone(s.Pools)
	s.Pools[name] = p

	return s
}

// scheduling returns a copy of a spec whose control planes run pods.
func (s draft) scheduling() draft {
	s.Cluster.SchedulableControlPlanes = new(true)

	return s
}

// on returns a copy of a spec with these hosts, each with vCPU and GiB; nothing of both is a host without a limit.
func (s draft) on(capacities ...[2]int) draft {
	s.Proxmox.Hosts = nil

	for i, c := range capacities {
		h := spec.Host{Name: fmt.Sprintf("%c", 'a'+i)}
		if c != [2]int{} {
			h.Capacity = &spec.Resources{VCPU: c[0], MemoryMiB: c[1] * 1024}
		}

		s.Proxmox.Hosts = append(s.Proxmox.Hosts, h)
	}

	return s
}

// sized is a VM with so many cores and GiB.
func sized(cores, gib int) spec.VMSpec {
	return spec.VMSpec{Cores: new(cores), MemoryMiB: new(gib * 1024)}
}

// hostsOf are the hosts of a pool's nodes, in order.
func hostsOf(p *plan.Plan, pool string) []string {
	var hosts []string

	for _, n := range p.Nodes() {
		if n.Pool == pool {
			hosts = append(hosts, n.Host)
		}
	}

	return hosts
}
