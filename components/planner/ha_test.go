package planner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
)

// TestWhereVMsRun: haGroup and ha say the same thing in two ways, and what is nearer to a node holds.
func TestWhereVMsRun(t *testing.T) {
	t.Parallel()

	group, hosts := spec.VMSpec{HAGroup: new("all")}, spec.VMSpec{HA: &spec.HA{Hosts: []string{"pve"}}}

	type decided struct {
		group string
		ha    *spec.HA
	}

	for name, test := range map[string]struct {
		defaults, pool spec.VMSpec
		want           decided
		problems       []string
	}{
		"group of defaults":      {defaults: group, want: decided{group: "all"}},
		"hosts in its place":     {defaults: group, pool: hosts, want: decided{ha: hosts.HA}},
		"group in their place":   {defaults: hosts, pool: group, want: decided{group: "all"}},
		"another group":          {defaults: group, pool: spec.VMSpec{HAGroup: new("some")}, want: decided{group: "some"}},
		"group, and an empty ha": {defaults: group, pool: spec.VMSpec{HA: &spec.HA{}}, want: decided{"all", &spec.HA{}}},
		"both at once": {
			pool: spec.VMSpec{HAGroup: group.HAGroup, HA: hosts.HA},
			problems: []string{
				"pools.worker.ha: cannot be combined with haGroup: both determine where VMs run (given: all); " +
					"leave one of the two out",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().with("worker", workersWith(test.pool))
			s.Defaults = test.defaults

			if got := said(t, s); !assert.Equal(t, test.problems, got) || got != nil {
				return
			}

			n := placed(t, s).Pools[1].Nodes[0]
			assert.Equal(t, test.want, decided{n.HAGroup, n.HA})
		})
	}
}

// TestHARulesOfAPool: Proxmox VE has one rule for the VMs of a pool, and places for all of them.
func TestHARulesOfAPool(t *testing.T) {
	t.Parallel()

	on := func(strict, apart bool, hosts ...string) spec.VMSpec {
		return spec.VMSpec{HA: &spec.HA{Hosts: hosts, Strict: strict, Apart: apart}}
	}

	const other = ", { hosts: [a] }: a pool has one high-availability rule (given: { hosts: [b], strict: true }); set " +
		"the same for both, or give one of the two nodes another pool"

	for name, test := range map[string]struct {
		pool  spec.VMSpec
		nodes map[string]spec.VMSpec
		want  []string
	}{
		"nodes as one":        {nodes: map[string]spec.VMSpec{"1": on(false, false, "a", "b"), "2": on(false, false, "b", "a")}},
		"one without":         {nodes: map[string]spec.VMSpec{"1": on(false, false, "a"), "2": {}, "3": {HA: &spec.HA{}}}},
		"one in a group":      {nodes: map[string]spec.VMSpec{"1": on(false, false, "a"), "2": {HAGroup: new("all")}}},
		"all unlike the pool": {pool: on(false, false, "a"), nodes: map[string]spec.VMSpec{"1": on(false, false, "b")}},
		"apart on two of three": {
			pool: on(true, true, "a", "b"), nodes: map[string]spec.VMSpec{"1": {}, "2": {}},
		},
		"two rules": {
			nodes: map[string]spec.VMSpec{"1": on(false, false, "a"), "2": on(true, false, "b")},
			want:  []string{"pools.worker.nodes.2.ha: must be the same as that of pools.worker.nodes.1" + other},
		},
		"not as the pool": {
			pool:  on(false, false, "a"),
			nodes: map[string]spec.VMSpec{"1": on(true, false, "b"), "2": {}, "3": {}},
			want:  []string{"pools.worker.nodes.1.ha: must be the same as that of pools.worker.nodes.2" + other},
		},
		"apart on one host": {
			pool: on(false, true, "a"), nodes: map[string]spec.VMSpec{"1": {}, "2": {}},
			want: []string{"pools.worker.ha.apart: needs a host for each node of the pool, and there are 1 for 2 (given: true); " +
				"add hosts to ha.hosts, or leave it out"},
		},
		"apart on too few": {
			pool: on(false, true), nodes: map[string]spec.VMSpec{"1": {}, "2": {}, "3": {}, "4": {}},
			want: []string{"pools.worker.ha.apart: needs a host for each node of the pool, and there are 3 for 4 (given: true); " +
				"add hosts to proxmox.hosts, or leave it out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			pool := workersWith(test.pool)
			pool.Count, pool.Nodes = nil, map[string]spec.NodeSpec{}

			for key, s := range test.nodes {
				pool.Nodes[key] = spec.NodeSpec{VMSpec: s}
			}

			assert.Equal(t, test.want, said(t, small().on([2]int{}, [2]int{}, [2]int{}).with("worker", pool)))
		})
	}
}

// TestHostsOfHA: a VM that is made on another host than high availability keeps it on is moved at once, and stays where
// the plan does not have it.
func TestHostsOfHA(t *testing.T) {
	t.Parallel()

	on := func(hosts ...string) spec.VMSpec { return spec.VMSpec{HA: &spec.HA{Hosts: hosts}} }
	pool := func(role spec.Role, vm spec.VMSpec, host string) spec.Pool {
		return spec.Pool{
			Role: role, Addresses: map[bool]spec.Range{true: "10.0.0.11-99", false: "10.1.0.1-99"}[role == spec.RoleControlPlane],
			Count: new(3), Host: host, VMSpec: vm,
		}
	}

	const moves = "is not one of the hosts that ha.hosts prefers: high availability moves the VM there once it is made"

	for name, test := range map[string]struct {
		control, worker string // their hosts
		vm              spec.VMSpec
		want            string
		warnings        int
	}{
		"all":                  {vm: spec.VMSpec{HA: &spec.HA{}}, want: "a b c, a b c"},
		"two":                  {vm: on("c", "b"), want: "b c b, b c b"},
		"the highest priority": {vm: on("a", "b:2", "c:2"), want: "b c b, b c b"},
		"one":                  {vm: on("c"), want: "c c c, c c c"},
		"a host that is set":   {vm: on("b", "c"), worker: "b", want: "b c b, b b b"},
		"another host":         {vm: on("b", "c"), worker: "a", want: "b c b, a a a", warnings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().scheduling().on([2]int{}, [2]int{}, [2]int{}).
				with("control", pool(spec.RoleControlPlane, test.vm, test.control)).
				with("worker", pool(spec.RoleWorker, test.vm, test.worker))
			p := placed(t, s)

			assert.Equal(t, test.want, strings.Join(hostsOf(p, "control"), " ")+", "+strings.Join(hostsOf(p, "worker"), " "))
			assert.Len(t, p.Warnings, test.warnings)

			for _, w := range p.Warnings {
				assert.Equal(t, spec.Problem{
					Path: "pools.worker.host", Rule: moves, Value: "a", Remedy: "name one of those, or leave it out",
				}, w)
			}
		})
	}
}

// TestApartFromTheStart: nodes that are kept apart are made apart, whatever else is on the hosts.
func TestApartFromTheStart(t *testing.T) {
	t.Parallel()

	pool := func(ha *spec.HA, nodes map[string]spec.NodeSpec) spec.Pool {
		return spec.Pool{Role: spec.RoleWorker, Addresses: "10.1.0.1-99", Nodes: nodes, VMSpec: spec.VMSpec{HA: ha}}
	}
	three := map[string]spec.NodeSpec{"1": {}, "2": {}, "3": {}}

	for name, test := range map[string]struct {
		pool spec.Pool
		want string
	}{
		"together":             {pool(&spec.HA{}, three), "b c b"},
		"apart":                {pool(&spec.HA{Apart: true}, three), "b c a"},
		"one is pinned":        {pool(&spec.HA{Apart: true}, map[string]spec.NodeSpec{"1": {}, "2": {Host: "b"}}), "c b"},
		"on the preferred two": {pool(&spec.HA{Apart: true, Hosts: []string{"a", "c"}}, map[string]spec.NodeSpec{"1": {}, "2": {}}), "c a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			// Another pool has two nodes on a, and comes first.
			s := small().scheduling().on([2]int{}, [2]int{}, [2]int{}).
				with("first", spec.Pool{Role: spec.RoleWorker, Count: new(2), Host: "a", Addresses: "10.2.0.1-9", VMIDs: "900-909"}).
				with("worker", test.pool)

			assert.Equal(t, test.want, strings.Join(hostsOf(placed(t, s), "worker"), " "))
		})
	}
}

// TestHAOfOneNode: a node of its own has no list of hosts, and may name those that it runs on.
func TestHAOfOneNode(t *testing.T) {
	t.Parallel()

	for _, ha := range []spec.HA{{Hosts: []string{"pve1:2", "pve2"}}, {Apart: true}} {
		n, err := NewNode(NodeArgs{Name: "web", Host: "pve1", VMID: 700, VM: spec.VMSpec{HA: &ha}})
		require.NoError(t, err)
		assert.Equal(t, &ha, n.HA)
	}

	_, err := NewNode(NodeArgs{
		Name: "web", Host: "pve1", VMID: 700, VM: spec.VMSpec{HA: &spec.HA{Hosts: []string{"pve1:x"}}},
	})
	require.ErrorContains(t, err, "node.ha.hosts[0]: must be a host")
}
