package planner

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

func workers(count, cores, gib int) spec.Pool {
	return spec.Pool{
		Role: spec.RoleWorker, Count: &count, Addresses: "10.1.0.0-10.1.255.255", VMIDs: "1000-19999",
		VMSpec: sized(cores, gib),
	}
}

func controls(count, cores, gib int) spec.Pool {
	return spec.Pool{
		Role: spec.RoleControlPlane, Count: &count, Addresses: "10.0.0.11-10.0.0.99",
		VMSpec: sized(cores, gib),
	}
}

func placed(t *testing.T, s draft) *plan.Plan {
	t.Helper()

	p, err := Plan(spec.Spec(s))
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// TestPlacement tells the stories of the capacity document.
func TestPlacement(t *testing.T) {
	for name, test := range map[string]struct {
		spec             draft
		control, workers string
	}{
		"slots are interleaved": {
			small().on([2]int{16, 64}, [2]int{16, 64}, [2]int{16, 64}).with("control", controls(3, 4, 8)).with("worker",
				workers(6, 4, 8)),
			"a b c", "a b c a b c",
		},
		"a larger host takes the rest": {
			small().on([2]int{32, 128}, [2]int{8, 32}, [2]int{8, 32}).with("control", controls(3, 4, 8)).with("worker",
				workers(6, 4, 8)),
			"a b c", "a b c a a a",
		},
		"the smaller of vCPU and memory": {
			small().on([2]int{64, 16}, [2]int{16, 256}).with("control", controls(1, 4, 8)).with("worker", workers(5, 4, 8)),
			"a", "a b b b b",
		},
		"control planes take from the slots": {
			small().on([2]int{8, 32}, [2]int{8, 32}).with("control", controls(1, 4, 8)).with("worker", workers(3, 4, 8)),
			"a", "a b b",
		},
		"a control plane passes over a host that is too small": {
			small().on([2]int{2, 4}, [2]int{8, 32}, [2]int{8, 32}).with("control", controls(2, 4, 8)),
			"b c", "",
		},
		"fewer hosts than control planes": {
			small().on([2]int{16, 64}, [2]int{16, 64}).with("control", controls(3, 4, 8)),
			"a b a", "",
		},
		"hosts without a limit": {
			small().on([2]int{}, [2]int{}, [2]int{}).with("control", controls(3, 4, 8)).with("worker", workers(4, 4, 8)),
			"a b c", "a b c a",
		},
		"one host": {
			small().with("control", controls(3, 4, 8)).with("worker", workers(2, 4, 8)), "pve pve pve", "pve pve",
		},
		"a pinned control plane keeps others away": {
			small().on([2]int{}, [2]int{}, [2]int{}).with("control", spec.Pool{
				Role: spec.RoleControlPlane, Addresses: "10.0.0.11-99",
				Nodes: map[string]spec.NodeSpec{"1": {}, "2": {}, "3": {Host: "a"}},
			}),
			"b c a", "",
		},
		"room that another pool has pinned is not given away": {
			small().on([2]int{8, 32}, [2]int{8, 32}).with("control", controls(1, 4, 8)).with("worker", workers(1, 4, 8)).
				with("zz", spec.Pool{
					Role: spec.RoleWorker, Count: new(1), Host: "a", Addresses: "10.2.0.1", VMIDs: "900",
					VMSpec: sized(4, 8),
				}),
			"a", "b",
		},
		"a pin within the pool takes its turn": {
			small().on([2]int{}, [2]int{}, [2]int{}).with("worker", spec.Pool{
				Role: spec.RoleWorker, Addresses: "10.1.0.1-99",
				Nodes: map[string]spec.NodeSpec{"1": {}, "2": {Host: "a"}, "3": {}, "4": {}},
			}),
			"a", "a a b c",
		},
		"a node too large for its slot takes the next": {
			small().on([2]int{8, 32}, [2]int{16, 64}).with("control", controls(1, 4, 8)).with("worker", spec.Pool{
				Role: spec.RoleWorker, Addresses: "10.1.0.1-99", VMSpec: sized(4, 8),
				Nodes: map[string]spec.NodeSpec{"1": {VMSpec: sized(8, 8)}, "2": {}},
			}),
			"a", "b a",
		},
		"a node smaller than its pool's others fits where they do not": {
			small().on([2]int{7, 32}).with("control", controls(1, 4, 8)).with("worker", spec.Pool{
				Role: spec.RoleWorker, Addresses: "10.1.0.1-99", VMSpec: sized(4, 8),
				Nodes: map[string]spec.NodeSpec{"1": {VMSpec: sized(2, 8)}},
			}),
			"a", "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := placed(t, test.spec)

			if got := strings.Join(hostsOf(p, "control"), " "); got != test.control {
				t.Errorf("control planes on %s, want %s", got, test.control)
			}

			if got := strings.Join(hostsOf(p, "worker"), " "); got != test.workers {
				t.Errorf("workers on %s, want %s", got, test.workers)
			}
		})
	}
}

// TestSlots: what is left after the control planes and the reserve, divided by the profile.
func TestSlots(t *testing.T) {
	s := small().on([2]int{32, 128}, [2]int{16, 64}, [2]int{}).with("control", controls(1, 4, 8)).with("worker",
		workers(1, 8, 16))
	s.Placement.Reserve = spec.Resources{VCPU: 2, MemoryMiB: 8192}
	s.Proxmox.Hosts[1].Reserve = &spec.Resources{}

	var got []int
	for _, h := range placed(t, s).Hosts {
		got = append(got, h.Slots)
	}

	// a: (32-2-4)/8 = 3; b: 16/8 = 2 with no reserve; c has no limit.
	if want := []int{3, 2, -1}; !slices.Equal(got, want) {
		t.Errorf("slots %v, want %v", got, want)
	}
}

// TestTwoProfiles: pools of different size share the hosts' turns.
func TestTwoProfiles(t *testing.T) {
	s := small().on([2]int{20, 64}, [2]int{20, 64}).with("control", controls(1, 4, 8)).with("big", workers(2, 8, 16)).
		with("small", spec.Pool{
			Role: spec.RoleWorker, Count: new(3), Addresses: "10.2.0.1-9", VMIDs: "900-909",
			VMSpec: sized(4, 4),
		})
	p := placed(t, s)

	if got := strings.Join(hostsOf(p, "big"), " ") + ", " + strings.Join(hostsOf(p, "small"), " "); got != "a b, a b a" {
		t.Errorf("got %s", got)
	}
}

// TestPinnedTogether: two control planes on one host is the operator's word, but not passed over in silence.
func TestPinnedTogether(t *testing.T) {
	s := small().scheduling().on([2]int{}, [2]int{}, [2]int{}).with("control", spec.Pool{
		Role: spec.RoleControlPlane, Addresses: "10.0.0.11-99",
		Nodes: map[string]spec.NodeSpec{"1": {Host: "a"}, "2": {Host: "a"}, "3": {}},
	})

	want := []spec.Problem{{
		Path: "pools", Rule: "pin several control planes to one host, although there are enough hosts", Value: "a",
		Remedy: "pin them apart",
	}}
	if diff := cmp.Diff(want, placed(t, s).Warnings); diff != "" {
		t.Error(diff)
	}
}

// TestPinStrategy: every node is where it, or its pool, says.
func TestPinStrategy(t *testing.T) {
	s := small().on([2]int{8, 32}, [2]int{8, 32})
	s.Placement.Strategy = spec.StrategyPin
	s = s.with("control", spec.Pool{Role: spec.RoleControlPlane, Count: new(1), Host: "b", Addresses: "10.0.0.11"}).with(
		"worker", spec.Pool{
			Role: spec.RoleWorker, Host: "a", Addresses: "10.1.0.1-99",
			Nodes: map[string]spec.NodeSpec{"1": {}, "2": {Host: "b"}},
		})
	p := placed(t, s)

	if got := strings.Join(hostsOf(p, "control"), " ") + ", " + strings.Join(hostsOf(p, "worker"), " "); got != "b, a b" {
		t.Errorf("got %s", got)
	}
}
