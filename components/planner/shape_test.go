package planner

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/spec"
)

// workersWith is a pool of two workers.
func workersWith(s spec.VMSpec) spec.Pool {
	return spec.Pool{Role: spec.RoleWorker, Count: new(2), Addresses: "10.0.1.11-10.0.1.19", VMSpec: s}
}

// TestBallooningOfDefaults: a pool or node can do without the ballooning of defaults, whose minimum then has no meaning.
func TestBallooningOfDefaults(t *testing.T) {
	t.Parallel()

	balloons := spec.VMSpec{Ballooning: new(true), MinimumMemoryMiB: new(2048)}
	not := spec.VMSpec{Ballooning: new(false)}
	gpu := func(s spec.VMSpec) spec.Pool {
		return spec.Pool{
			Role: spec.RoleWorker, GPUs: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}},
			Addresses: "10.0.1.11-10.0.1.19", Image: spec.PoolImage{Template: "9000"}, VMSpec: s,
		}
	}

	for name, test := range map[string]struct {
		defaults spec.VMSpec
		pool     spec.Pool
		want     []string
		least    int // of the first node of the pool
	}{
		"as defaults":  {defaults: balloons, pool: workersWith(spec.VMSpec{}), least: 2048},
		"not the pool": {defaults: balloons, pool: workersWith(not), least: 4096},
		"not a node": {
			defaults: balloons, least: 4096,
			pool: spec.Pool{
				Role: spec.RoleWorker, Nodes: map[string]spec.NodeSpec{"1": {VMSpec: not}}, Addresses: "10.0.1.11",
			},
		},
		"only the pool": {
			defaults: spec.VMSpec{MinimumMemoryMiB: new(2048)}, least: 2048,
			pool: workersWith(spec.VMSpec{Ballooning: new(true)}),
		},
		"no pool": {
			defaults: spec.VMSpec{MinimumMemoryMiB: new(2048)}, pool: workersWith(spec.VMSpec{}),
			want: []string{"defaults.minimumMemoryMiB: needs ballooning: true (given: 2048); add that, or leave it out"},
		},
		"the pool's own minimum": {
			defaults: balloons, pool: workersWith(spec.VMSpec{Ballooning: new(false), MinimumMemoryMiB: new(3072)}),
			want: []string{"pools.worker.minimumMemoryMiB: needs ballooning: true (given: 3072); add that, or leave it out"},
		},
		"no minimum": {
			defaults: spec.VMSpec{Ballooning: new(true)}, pool: workersWith(not),
			want: []string{"pools.control.ballooning: has no effect without minimumMemoryMiB (given: true); set the memory " +
				"that the VM keeps (all of it: 4096), or set ballooning: false"},
		},
		"a GPU": {
			defaults: balloons, pool: gpu(spec.VMSpec{}),
			want: []string{"pools.worker.ballooning: must be off: the memory of a VM with a GPU is pinned (given: true); " +
				"write ballooning: false"},
		},
		"a GPU without": {defaults: balloons, pool: gpu(not), least: 4096},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().with("worker", test.pool)
			s.Defaults = test.defaults

			if got := said(t, s); !assert.Equal(t, test.want, got) || got != nil {
				return
			}

			n := placed(t, s).Pools[1].Nodes[0]
			assert.Equal(t, test.least, n.MinimumMemoryMiB)
			assert.Equal(t, test.least != 4096, n.Ballooning)
		})
	}
}
