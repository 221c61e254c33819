package planner

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// drawSpec draws a spec whose configuration is right; only the capacity of the hosts may be too small.
func drawSpec(t *rapid.T) draft {
	s := small()
	s.Proxmox.Hosts, s.Pools = nil, map[string]spec.Pool{}

	limited := rapid.Bool().Draw(t, "limited")

	for i := range rapid.IntRange(1, 6).Draw(t, "hosts") {
		h := spec.Host{Name: fmt.Sprintf("pve%d", i)}
		if limited {
			h.Capacity = &spec.Resources{
				VCPU:      rapid.IntRange(4, 64).Draw(t, "vcpu"),
				MemoryMiB: rapid.IntRange(8, 256).Draw(t, "gib") * 1024,
			}
		}

		s.Proxmox.Hosts = append(s.Proxmox.Hosts, h)
	}

	s.Placement.Reserve = spec.Resources{
		VCPU:      rapid.IntRange(0, 4).Draw(t, "reserve"),
		MemoryMiB: rapid.IntRange(0, 4096).Draw(t, "reserve MiB"),
	}

	for i := range rapid.IntRange(1, 2).Draw(t, "control pools") {
		s.Pools[fmt.Sprintf("control%d", i)] = drawPool(t, s, spec.RoleControlPlane, i, 5)
	}

	for i := range rapid.IntRange(0, 3).Draw(t, "worker pools") {
		s.Pools[fmt.Sprintf("worker%d", i)] = drawPool(t, s, spec.RoleWorker, 10+i, 20)
	}

	if first := s.Pools["control0"]; first.Count != nil && *first.Count == 0 {
		s.Pools["control0"] = grown(t, s, "control0", 1)
	}

	return s
}

// drawPool draws a pool with room for growth: VMIDs and addresses of its own.
func drawPool(t *rapid.T, s draft, role spec.Role, i, most int) spec.Pool {
	p := spec.Pool{
		Role: role, VMIDs: spec.Range(fmt.Sprintf("%d-%d", 1000*(i+1), 1000*(i+1)+999)),
		Addresses: spec.Range(fmt.Sprintf("10.%d.0.1-10.%d.3.254", i+1, i+1)),
		VMSpec:    sized(rapid.IntRange(1, 8).Draw(t, "cores"), rapid.IntRange(1, 32).Draw(t, "memory")),
	}

	if rapid.Bool().Draw(t, "count") {
		p.Count = new(rapid.IntRange(0, most).Draw(t, "number"))

		return p
	}

	p.Nodes = map[string]spec.NodeSpec{}

	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 40), 1, most, rapid.ID[int]).Draw(t, "ordinals") {
		var node spec.NodeSpec

		if rapid.Bool().Draw(t, "pinned") {
			node.Host = rapid.SampledFrom(s.Proxmox.Hosts).Draw(t, "host").Name
		}

		if rapid.Bool().Draw(t, "own size") {
			node.VMSpec = sized(rapid.IntRange(1, 8).Draw(t, "cores"), rapid.IntRange(1, 32).Draw(t, "memory"))
		}

		p.Nodes[fmt.Sprint(n)] = node
	}

	return p
}

// grown is a pool with more nodes behind those it has.
func grown(t *rapid.T, s draft, name string, by int) spec.Pool {
	p := s.Pools[name]

	if p.Count != nil {
		p.Count = new(*p.Count + by)

		return p
	}

	last := 0

	for key := range p.Nodes {
		var n int
		if _, err := fmt.Sscan(key, &n); err != nil {
			t.Fatal(err)
		}

		last = max(last, n)
	}

	p.Nodes = maps.Clone(p.Nodes)

	for i := range by {
		var node spec.NodeSpec
		// A control plane that is pinned takes its host from others: two must not share one.
		if p.Role == spec.RoleWorker && rapid.Bool().Draw(t, "pin the new one") {
			node.Host = rapid.SampledFrom(s.Proxmox.Hosts).Draw(t, "host of the new one").Name
		}

		p.Nodes[fmt.Sprint(last+1+i)] = node
	}

	return p
}

// planned plans a spec that is right but for the capacity; nil when that is too small.
func planned(t *rapid.T, s draft) *plan.Plan {
	p, err := Plan(spec.Spec(s))
	if err == nil {
		return p
	}

	var problems spec.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}

	for _, problem := range problems {
		if problem.Path != "proxmox.hosts" || problem.Detail == "" {
			t.Fatal(err)
		}
	}

	return nil
}

func TestNoHostIsOverCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)

		p := planned(t, s)
		if p == nil {
			return
		}

		used := map[string]spec.Resources{}
		for _, n := range p.Nodes() {
			used[n.Host] = used[n.Host].Plus(spec.Resources{VCPU: n.Cores, MemoryMiB: n.MemoryMiB})
		}

		for i, h := range s.Proxmox.Hosts {
			if p.Hosts[i].Used != used[h.Name] {
				t.Fatalf("host %s: %v used, %v said", h.Name, used[h.Name], p.Hosts[i].Used)
			}

			if h.Capacity == nil {
				continue
			}

			left := h.Capacity.Minus(s.Placement.Reserve).Minus(used[h.Name])
			if n := used[h.Name]; n != (spec.Resources{}) && (left.VCPU < 0 || left.MemoryMiB < 0) {
				t.Fatalf("host %s: %v used of %v with %v kept", h.Name, n, *h.Capacity, s.Placement.Reserve)
			}
		}
	})
}

func TestControlPlanesShareAHostOnlyWhenTheyMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)

		p := planned(t, s)
		if p == nil || len(p.ControlPlanes()) > len(s.Proxmox.Hosts) {
			return
		}

		pins, hosts := map[string]int{}, map[string]int{}

		for _, pool := range s.Pools {
			for _, n := range pool.Nodes {
				if pool.Role == spec.RoleControlPlane && n.Host != "" {
					pins[n.Host]++
				}
			}
		}

		for _, n := range p.ControlPlanes() {
			hosts[n.Host]++
		}

		for host, n := range hosts {
			if n > 1 && n != pins[host] {
				t.Fatalf("%d control planes on %s, %d of them pinned there, and there are %d hosts", n, host, pins[host],
					len(s.Proxmox.Hosts))
			}
		}
	})
}

func TestSpreadIsEvenWhereCapacityPermits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)

		for i := range s.Proxmox.Hosts {
			s.Proxmox.Hosts[i].Capacity = nil
		}

		for name, pool := range s.Pools {
			for key, n := range pool.Nodes {
				n.Host = ""
				pool.Nodes[key] = n
			}

			s.Pools[name] = pool
		}

		p := planned(t, s)

		for _, role := range []spec.Role{spec.RoleControlPlane, spec.RoleWorker} {
			number := map[string]int{}

			for _, n := range p.Nodes() {
				if n.Role == role {
					number[n.Host]++
				}
			}

			least, most := 1<<30, 0
			for _, h := range s.Proxmox.Hosts {
				least, most = min(least, number[h.Name]), max(most, number[h.Name])
			}

			if most-least > 1 {
				t.Fatalf("%ss per host: %v", role, number)
			}
		}
	})
}

// TestInterleaving compares with the algorithm as the capacity document writes it down: slots of each host from what is
// left, then A0, B0, C0, A1 ..., then workers in order.
func TestInterleaving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := small()
		s.Proxmox.Hosts = nil

		for i := range rapid.IntRange(1, 8).Draw(t, "hosts") {
			s.Proxmox.Hosts = append(s.Proxmox.Hosts, spec.Host{
				Name: fmt.Sprintf("pve%d", i),
				Capacity: &spec.Resources{
					VCPU:      rapid.IntRange(8, 96).Draw(t, "vcpu"),
					MemoryMiB: rapid.IntRange(16, 256).Draw(t, "gib") * 1024,
				},
			})
		}

		controls := rapid.IntRange(1, len(s.Proxmox.Hosts)).Draw(t, "control planes")
		s.Pools["control"] = spec.Pool{
			Role: spec.RoleControlPlane, Count: &controls, Addresses: "10.0.0.11-10.0.0.99",
			VMSpec: sized(2, 4),
		}

		cores, gib := rapid.IntRange(1, 16).Draw(t, "cores"), rapid.IntRange(1, 32).Draw(t, "memory")

		var (
			slots []string
			free  []int
		)

		for i, h := range s.Proxmox.Hosts {
			left := *h.Capacity
			if i < controls {
				left = left.Minus(spec.Resources{VCPU: 2, MemoryMiB: 4 * 1024})
			}

			free = append(free, min(left.VCPU/cores, left.MemoryMiB/(gib*1024)))
		}

		for round := range slices.Max(free) {
			for i, h := range s.Proxmox.Hosts {
				if round < free[i] {
					slots = append(slots, h.Name)
				}
			}
		}

		workers := rapid.IntRange(0, len(slots)).Draw(t, "workers")
		s.Pools["worker"] = spec.Pool{
			Role: spec.RoleWorker, Count: &workers, Addresses: "10.1.0.0-10.2.0.0",
			VMIDs: "1000-9999", VMSpec: sized(cores, gib),
		}

		p := planned(t, s)
		if p == nil {
			t.Fatal("there is room")
		}

		if got := hostsOf(p, "worker"); !slices.Equal(got, slots[:workers]) {
			t.Fatalf("workers on %v, want %v", got, slots[:workers])
		}

		if full := len(slots) + 1; workers == len(slots) {
			s.Pools["worker"] = spec.Pool{
				Role: spec.RoleWorker, Count: &full, Addresses: "10.1.0.0-10.2.0.0",
				VMIDs: "1000-9999", VMSpec: sized(cores, gib),
			}
			if planned(t, s) != nil {
				t.Fatal("there is no room for one more")
			}
		}
	})
}

func TestNothingClashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := planned(t, drawSpec(t))
		if p == nil {
			return
		}

		seen := map[any]string{}

		for _, n := range p.Nodes() {
			for _, id := range []any{n.Name, n.VMID, n.MAC, n.Address} {
				if other, dup := seen[id]; dup {
					t.Fatalf("%v of %s is also %s's", id, n.Name, other)
				}

				seen[id] = n.Name
			}
		}
	})
}

// TestGrowthChangesNothing: whatever pool grows, no node gets another name, VMID, MAC or address, and none in that
// pool another host.
func TestGrowthChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)

		before := planned(t, s)
		if before == nil {
			return
		}

		name := rapid.SampledFrom(slices.Sorted(maps.Keys(s.Pools))).Draw(t, "grows")

		after := planned(t, s.with(name, grown(t, s, name, rapid.IntRange(1, 30).Draw(t, "by"))))
		if after == nil {
			return
		}

		now := map[string]plan.Node{}
		for _, n := range after.Nodes() {
			now[n.Name] = n
		}

		for _, was := range before.Nodes() {
			is := now[was.Name]
			if is.VMID != was.VMID || is.MAC != was.MAC || is.Address != was.Address || is.Ordinal != was.Ordinal ||
				is.ImageKey != was.ImageKey {
				t.Fatalf("%s was %v and is %v", was.Name, was, is)
			}

			if was.Pool == name && is.Host != was.Host {
				t.Fatalf("%s was on %s and is on %s", was.Name, was.Host, is.Host)
			}
		}
	})
}

func TestSameInputSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		if a, b := planned(t, s), planned(t, s); !reflect.DeepEqual(a, b) {
			t.Fatal("two plans of one spec differ")
		}
	})
}
