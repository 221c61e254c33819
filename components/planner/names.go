package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/spec"
)

// namer makes the node names of one pool.
type namer struct{ parts []string }

// newNamer splits a pattern at the places of the node's number.
func newNamer(pattern, cluster, pool string) namer {
	pattern = cmp.Or(pattern, "{cluster}-{pool}-{n}")
	pattern = strings.NewReplacer("{cluster}", cluster, "{pool}", pool).Replace(pattern)

	var parts []string

	for {
		at := -1

		for _, number := range []string{"{n}", "{nn}", "{nnn}"} {
			if i := strings.Index(pattern, number); i >= 0 && (at < 0 || i < at) {
				at = i
			}
		}

		if at < 0 {
			return namer{append(parts, pattern)}
		}

		end := at + strings.Index(pattern[at:], "}") + 1
		parts = append(parts, pattern[:at], pattern[at:end])
		pattern = pattern[end:]
	}
}

// numbered reports whether names differ by the node's number.
func (n namer) numbered() bool { return len(n.parts) > 1 }

func (n namer) name(ordinal int) string {
	var b strings.Builder

	for i, part := range n.parts {
		if i%2 == 0 {
			b.WriteString(part)

			continue
		}

		number := strconv.Itoa(ordinal)
		for range len(part) - len("{}") - len(number) {
			b.WriteByte('0')
		}

		b.WriteString(number)
	}

	return b.String()
}

// NodeNames are the names that a plan gives the nodes of the pool called name, by the keys that the nodes have in the
// configuration. The pool may lack what a plan needs; a key that is no number is left out.
func NodeNames(p spec.Pool, cluster, name string) map[string]string {
	var r resolver

	names, found := newNamer(p.Names, cluster, name), map[string]string{}
	for _, m := range r.members(&pool{Pool: p}) {
		found[strconv.Itoa(m.ordinal)] = names.name(m.ordinal)
	}

	return found
}

// members are the nodes of a pool in the order of their ordinals.
func (r *resolver) members(p *pool) []poolNode {
	var found []poolNode

	if p.Count != nil {
		if *p.Count < 0 || *p.Count > maxCount {
			r.Problems.Add(p.path+".count", fmt.Sprintf("must be a number from 0 to %d", maxCount), strconv.Itoa(*p.Count),
				"correct it")

			return nil
		}

		found = make([]poolNode, *p.Count)
		for i := range found {
			found[i] = poolNode{ordinal: i + 1, path: p.path, NodeSpec: emptyNodeSpec}
		}

		return found
	}

	// In order, for what is wrong is reported in order.
	for _, key := range slices.Sorted(maps.Keys(p.Nodes)) {
		spec, path := p.Nodes[key], p.path+".nodes."+key
		found = append(found, poolNode{ordinal: r.ordinal(path, key), path: path, NodeSpec: &spec})
	}

	for _, key := range slices.Sorted(maps.Keys(p.GPUs)) {
		spec, path := p.GPUs[key], p.path+".gpus."+key
		found = append(found, poolNode{ordinal: r.ordinal(path, key), path: path, NodeSpec: &spec.NodeSpec, gpu: &spec})
	}

	slices.SortFunc(found, func(a, b poolNode) int {
		if a.ordinal != b.ordinal {
			return a.ordinal - b.ordinal
		}

		return strings.Compare(a.path, b.path)
	})

	return slices.DeleteFunc(found, func(m poolNode) bool { return m.ordinal == 0 })
}

// maxCount bounds the ordinals: beyond it a number is a slip, not a node.
const maxCount = 10_000

func (r *resolver) ordinal(path, key string) int {
	n, err := strconv.Atoi(key)
	if err != nil || n < 1 || n > maxCount || strconv.Itoa(n) != key {
		r.Problems.Add(path, fmt.Sprintf("must be named by the node's number, from 1 to %d", maxCount), key,
			`write it like "1"; node n has the nth VMID and the nth address of the pool`)

		return 0
	}

	return n
}
