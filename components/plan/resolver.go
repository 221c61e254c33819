package plan

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/components/spec"
)

// resolver carries the problems while a spec is resolved. Each step goes on after a problem, so that all are found.
type resolver struct {
	spec         spec.Spec
	network      netip.Prefix
	gateway      netip.Addr
	vip          netip.Addr
	apiFrom      []netip.Prefix
	ingressRules []ingressRule
	pools        []*pool
	static       bool                // some addresses are written into machine configuration
	taken        map[netip.Addr]bool // stated by nodes, for suggestions; nil until one is made
	offered      []interval[int]     // ranges of VMIDs that a problem has named
	problems     spec.Problems
	warnings     []spec.Problem
}

// pool is a pool while it is resolved.
type pool struct {
	name, path string
	spec.Pool
	// shape is what a node of the pool is that says nothing of its own.
	shape     spec.VMSpec
	members   []poolNode
	vmids     intervals[int]
	addresses intervals[netip.Addr]
	planned   PlannedPool
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

// warn notes what does not stop the program.
func (r *resolver) warn(path, rule, value, remedy string) {
	r.warnings = append(r.warnings, spec.Problem{Path: path, Rule: rule, Value: value, Remedy: remedy})
}

func (r *resolver) duration(path, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.problems.Add(path, "must be a time span above zero", text, "write it like 90s, 10m or 1h")
	}

	return d
}

// oneOf holds a value against those there are.
func oneOf[T ~string](r *resolver, path string, value T, allowed ...T) bool {
	if slices.Contains(allowed, value) {
		return true
	}

	quoted := make([]string, len(allowed))
	for i, v := range allowed {
		quoted[i] = strconv.Quote(string(v))
	}

	r.problems.Add(path, "must be one of "+strings.Join(quoted, ", "), string(value), "choose one of them")

	return false
}

// at is the path of an element of a list.
func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func (r *resolver) isK3s() bool { return r.spec.Cluster.Distribution == spec.DistributionK3s }

// versionKey is the key that decides the version of Kubernetes.
func (r *resolver) versionKey() string {
	if r.isK3s() {
		return "cluster.versions.k3s"
	}

	return "cluster.versions.kubernetes"
}

// ingressRule is what the operator opens in addition.
type ingressRule struct {
	Ingress
	pools []string // nil: all
}

// exclusiveKey is a key that only one kind has.
type exclusiveKey struct {
	path  string
	given bool
	value string
}

// checksum is how the operator states one.
var checksum = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)

func valueOr[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}

	return *v
}
