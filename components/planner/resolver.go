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

	network             netip.Prefix
	gateway             netip.Addr
	vip                 netip.Addr
	apiFrom             []netip.Prefix
	ingressRules        []ingressRule
	pools               []*pool
	writesAddresses     bool                   // into machine configuration, at least some
	configuredAddresses map[netip.Addr]bool    // by nodes, for suggestions; nil until one is made
	suggestedVMIDs      []ranges.Interval[int] // by problems that have been found
}

// pool is a pool while it is resolved.
type pool struct {
	name, path string
	spec.Pool
	// vmDefaults is the VM of a node of the pool that states nothing of its own.
	vmDefaults spec.VMSpec
	members    []poolNode
	vmids      ranges.Intervals[int]
	addresses  ranges.Intervals[netip.Addr]
	planned    plan.PlannedPool
}

// poolNode is one node as the operator wrote it.
type poolNode struct {
	ordinal int
	path    string // of the node, or of the pool where the node has nothing of its own
	*spec.NodeSpec
	gpu *spec.GPUSpec
}

// emptyNodeSpec is the spec of a node that is only counted.
var emptyNodeSpec = &spec.NodeSpec{}

// statesVM says whether the node states something of its own VM.
func (m poolNode) statesVM() bool { return m.NodeSpec != emptyNodeSpec && !m.VMSpec.IsZero() }

// ingressRule is what the operator opens in addition.
type ingressRule struct {
	plan.Ingress
	pools []string // nil: all
}

// specKey is a key of the spec: whether the operator states it, and with what value.
type specKey struct {
	path       string
	configured bool
	value      string
}

// addProblemOnce adds a problem that several pools may share.
func (r *resolver) addProblemOnce(path, rule, value, remedy string) {
	if p := (spec.Problem{Path: path, Rule: rule, Value: value, Remedy: remedy}); !slices.Contains(r.Problems, p) {
		r.Problems = append(r.Problems, p)
	}
}

// warnOnce adds a warning that several pools may share.
func (r *resolver) warnOnce(path, rule, value, remedy string) {
	if w := (spec.Problem{Path: path, Rule: rule, Value: value, Remedy: remedy}); !slices.Contains(r.Warnings, w) {
		r.Warnings = append(r.Warnings, w)
	}
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
