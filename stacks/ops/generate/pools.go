package generate

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pool is a set of machines of one role whose names differ by a number.
type pool struct {
	name, pattern string
	role          string
	gpu           bool
	// nodes by their numbers.
	nodes map[int]*machine
}

var numbered = regexp.MustCompile(`^(.*?)(0*)([1-9]\d*)$`)

// pools groups the machines. A name without a number is a pool of its own.
func (w *writer) pools() []*pool {
	var all []*pool

	for _, m := range w.machines {
		bdf, _ := w.gpu(m)
		pattern, ordinal := m.vm.Name, 1

		if parts := numbered.FindStringSubmatch(m.vm.Name); parts != nil {
			ordinal, _ = strconv.Atoi(parts[3]) // digits

			width := len(parts[2]) + len(parts[3])
			if parts[2] == "" || width > 3 {
				width = 1
			}

			pattern = parts[1] + "{" + strings.Repeat("n", width) + "}"
		}

		i := slices.IndexFunc(all, func(p *pool) bool {
			return p.pattern == pattern && p.role == role(m) && p.gpu == (bdf != "") && p.nodes[ordinal] == nil
		})
		if i < 0 {
			i, all = len(all), append(all, &pool{pattern: pattern, role: role(m), gpu: bdf != "", nodes: map[int]*machine{}})
		}

		all[i].nodes[ordinal] = m
	}

	names := map[string]bool{}

	for _, p := range all {
		p.name = w.poolName(p)
		for i := 2; names[p.name]; i++ {
			p.name = fmt.Sprintf("%s-%d", strings.TrimRight(p.name, "-0123456789"), i)
		}

		names[p.name] = true
	}

	return all
}

var noLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// poolName is what names have between the cluster and the number, else the role.
func (w *writer) poolName(p *pool) string {
	name, _, _ := strings.Cut(p.pattern, "{")
	name = strings.Trim(noLabel.ReplaceAllString(strings.ToLower(strings.TrimPrefix(name, w.cluster+"-")), "-"), "-")

	return cmp.Or(name, map[string]string{"controlplane": "control", "worker": "worker"}[p.role])
}

func (p *pool) ordinals() []int {
	var all []int
	for n := range p.nodes {
		all = append(all, n)
	}

	slices.Sort(all)

	return all
}

// write is the pool in the stack file. Node n has the nth VMID and address, so that numbers that are not used take up
// some.
func (p *pool) write(w *writer) tree {
	t := tree{"role": p.role}

	if p.pattern != w.cluster+"-"+p.name+"-{n}" {
		t["names"] = p.pattern
	}

	ordinals := p.ordinals()
	nodes := tree{}

	var (
		vmids     []int
		addresses []netip.Addr
	)

	for n := 1; n <= ordinals[len(ordinals)-1]; n++ {
		m := p.nodes[n]
		if m == nil {
			vmids, addresses = append(vmids, w.freeVMID(vmids)), append(addresses, w.freeAddress(addresses))

			continue
		}

		vmids, addresses = append(vmids, m.vm.ID), append(addresses, m.address)

		node := w.shape(m)
		node["host"], node["mac"] = m.vm.Host, mac(m)

		if _, gpu := w.gpu(m); gpu != nil {
			for key, value := range gpu {
				node[key] = value
			}
		}

		switch patches := w.patches[m]; {
		case w.secret[m]:
			node["patches"] = []any{secretPatch(patches)}
		case patches != "":
			node["patches"] = []any{patches}
		}

		nodes[strconv.Itoa(n)] = node
	}

	t["vmids"] = ranges(vmids, strconv.Itoa, func(a, b int) bool { return a+1 == b })
	t["addresses"] = ranges(addresses, netip.Addr.String, func(a, b netip.Addr) bool { return a.Next() == b })

	raise(t, nodes, p.gpu)

	return t
}

// raise moves to the pool what all its nodes have.
func raise(t, nodes tree, gpu bool) {
	first := tree{}

	for _, node := range nodes {
		first = node.(tree)

		break
	}

	for key, value := range first {
		same := !slices.Contains([]string{"mac", "bdf", "pcie", "rombar", "raw"}, key)

		for _, node := range nodes {
			same = same && fmt.Sprint(node.(tree)[key]) == fmt.Sprint(value)
		}

		if same {
			t[key] = value

			for _, node := range nodes {
				delete(node.(tree), key)
			}
		}
	}

	if gpu {
		t["gpus"] = nodes
	} else {
		t["nodes"] = nodes
	}
}

// ranges writes a list with what follows one another together.
func ranges[T any](list []T, text func(T) string, follows func(a, b T) bool) string {
	var parts []string

	for i := 0; i < len(list); {
		last := i
		for last+1 < len(list) && follows(list[last], list[last+1]) {
			last++
		}

		part := text(list[i])
		if last > i {
			part += "-" + text(list[last])
		}

		parts, i = append(parts, part), last+1
	}

	return strings.Join(parts, ",")
}

// freeVMID is one that no VM has, after the last of a list.
func (w *writer) freeVMID(list []int) int {
	next := 400
	if len(list) > 0 {
		next = list[len(list)-1]
	}

	for next++; w.heldVMIDs[next]; {
		next++
	}

	w.heldVMIDs[next] = true

	return next
}

// freeAddress is one of the network that no node has, after the last of a list.
func (w *writer) freeAddress(list []netip.Addr) netip.Addr {
	next := w.network.Addr().Next()
	if len(list) > 0 {
		next = list[len(list)-1].Next()
	}

	for w.heldAddresses[next] {
		next = next.Next()
	}

	w.heldAddresses[next] = true

	return next
}
