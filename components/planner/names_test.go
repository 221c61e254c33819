package planner

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/spec"
)

// TestNodeNames: the names can be had before the pool can be planned, and are those of the plan.
func TestNodeNames(t *testing.T) {
	pool := spec.Pool{
		Role: spec.RoleWorker, Nodes: map[string]spec.NodeSpec{"2": {}, "10": {}},
		Names: "talos-{pool}-{nn}", Addresses: "10.0.1.1-10.0.1.99",
	}
	want := map[string]string{"2": "talos-w-02", "10": "talos-w-10"}

	p, err := Plan(spec.Spec(small().with("w", pool)))
	if err != nil {
		t.Fatal(err)
	}

	var planned []string
	for _, n := range p.Pools[1].Nodes {
		planned = append(planned, n.Name)
	}

	if diff := cmp.Diff([]string{"talos-w-02", "talos-w-10"}, planned); diff != "" {
		t.Error(diff)
	}

	pool.Addresses = ""
	pool.Nodes["x"] = spec.NodeSpec{}

	if diff := cmp.Diff(want, NodeNames(pool, "c", "w")); diff != "" {
		t.Error(diff)
	}

	counted := NodeNames(spec.Pool{Count: new(2)}, "c", "control")
	if diff := cmp.Diff([]string{"c-control-1", "c-control-2"}, slices.Sorted(maps.Values(counted))); diff != "" {
		t.Error(diff)
	}
}
