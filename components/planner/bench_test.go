package planner

import (
	"fmt"
	"testing"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// large is a cluster of so many nodes on so many hosts, in the mode that asks most of a plan: an image of its own for
// each node, three pools of workers of different size, a tenth of one pool with values of its own.
func large(nodes, hosts int) draft {
	s := small()
	s.Image = spec.Image{Platform: spec.PlatformMetal, Factory: spec.FactoryImage{Extensions: []string{plan.GuestAgent}}}
	s.Network.Gateway = "10.0.0.1"
	s.Proxmox.Hosts = nil

	// Room for all, but not much more.
	capacity := spec.Resources{VCPU: 16 + nodes*8/hosts, MemoryMiB: 65536 + nodes*16384/hosts}
	for i := range hosts {
		s.Proxmox.Hosts = append(s.Proxmox.Hosts, spec.Host{Name: fmt.Sprintf("pve%03d", i), Capacity: &capacity})
	}

	s.Pools["control"] = spec.Pool{Role: spec.RoleControlPlane, Count: new(3), Addresses: "10.0.0.11-10.0.0.13"}
	left := nodes - 3

	for i, share := range []int{left / 2, left / 3, left - left/2 - left/3} {
		p := spec.Pool{
			Role: spec.RoleWorker, VMIDs: spec.Range(fmt.Sprintf("%d-%d", 100_000*(i+1), 100_000*(i+1)+9999)),
			Addresses: spec.Range(fmt.Sprintf("10.%d.0.0-10.%d.255.255", i+1, i+1)), VMSpec: sized(2<<i, 4<<i),
		}

		if i < 2 {
			p.Count = &share
		} else {
			p.Nodes = map[string]spec.NodeSpec{}

			for n := range share {
				node := spec.NodeSpec{}
				if n%10 == 0 {
					node.VMSpec, node.Labels = sized(4, 8), map[string]string{"tier": "db"}
				}

				p.Nodes[fmt.Sprint(n+1)] = node
			}
		}

		s.Pools[fmt.Sprintf("worker%d", i)] = p
	}

	return s
}

// BenchmarkPlan plans clusters of growing size. What is asked: less than 100 ms for the largest, and at most twelve
// times the time of a tenth of it.
func BenchmarkPlan(b *testing.B) {
	for _, size := range []struct{ nodes, hosts int }{{10, 3}, {100, 10}, {1000, 50}, {10_000, 500}} {
		b.Run(fmt.Sprintf("nodes=%d/hosts=%d", size.nodes, size.hosts), func(b *testing.B) {
			s := large(size.nodes, size.hosts)

			for b.Loop() {
				if _, err := Plan(spec.Spec(s)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefuse plans a large cluster where everything is wrong that can be: finding problems must not take longer
// than finding none, by much.
func BenchmarkRefuse(b *testing.B) {
	for _, size := range []struct{ nodes, hosts int }{{1000, 50}, {10_000, 500}} {
		b.Run(fmt.Sprintf("nodes=%d/hosts=%d", size.nodes, size.hosts), func(b *testing.B) {
			s := large(size.nodes, size.hosts)
			s.Network.Gateway = "10.1.0.77"

			p := s.Pools["worker2"]
			for key := range p.Nodes {
				p.Nodes[key] = spec.NodeSpec{Host: "nowhere", MAC: "01:00:00:00:00:00", Address: "10.1.0.5", VMSpec: sized(0, 0)}
			}

			for b.Loop() {
				if _, err := Plan(spec.Spec(s)); err == nil {
					b.Fatal("nothing found wrong")
				}
			}
		})
	}
}
