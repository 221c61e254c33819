package planner

import (
	"net/netip"
	"slices"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/cluster"
	"talos-proxmox/components/planner/ranges"
	"talos-proxmox/components/spec"
)

// resolver carries the problems while a spec is resolved. Each step goes on after a problem, so that all are found.
type resolver struct {
	cluster.Resolver

	network      netip.Prefix
	gateway      netip.Addr
	vip          netip.Addr
	apiFrom      []netip.Prefix
	ingressRules []ingressRule
	pools        []*pool
	static       bool                   // some addresses are written into machine configuration
	taken        map[netip.Addr]bool    // stated by nodes, for suggestions; nil until one is made
	offered      []ranges.Interval[int] // ranges of VMIDs that a problem has named
}

// pool is a pool while it is resolved.
type pool struct {
	name, path string
	spec.Pool
	// shape is what a node of the pool is that says nothing of its own.
	shape     spec.VMSpec
	members   []poolNode
	vmids     ranges.Intervals[int]
	addresses ranges.Intervals[netip.Addr]
	planned   plan.PlannedPool
}

// poolNode is one node as the operator wrote it.
type poolNode struct {
	ordinal int
	path    string // of the node, or of the pool where the node has nothing of its own
	*spec.NodeSpec
	gpu *spec.GPUSpec
}

// emptyNode is what a node states that is only counted.
var emptyNode = &spec.NodeSpec{}

// shaped says whether the node states something of its shape.
func (m poolNode) shaped() bool { return m.NodeSpec != emptyNode && !m.VMSpec.IsZero() }

// ingressRule is what the operator opens in addition.
type ingressRule struct {
	plan.Ingress
	pools []string // nil: all
}

// exclusiveKey is a key that only one kind has.
type exclusiveKey struct {
	path  string
	given bool
	value string
}

func valueOr[T any](v *T, fallback T) T {
	if v == nil {
		return fallback
	}

	return *v
}

func allOf[T any](all []T, has func(T) bool) bool {
	return !slices.ContainsFunc(all, func(one T) bool { return !has(one) })
}
