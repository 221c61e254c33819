package placement

import (
	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// placer carries the hosts while nodes are placed.
type placer struct {
	*checks.Checker
	pools []*Pool
	hosts []host
	index map[string]int
	// missing is how many nodes have found no room, extra what they would need if the hosts had it.
	missing int
	extra   map[int]spec.Resources
}

// Pool is a pool whose nodes are placed.
type Pool struct {
	// Path is the configuration key of the pool.
	Path string
	Role spec.Role
	// Host is what the pool states for its nodes; empty: nothing.
	Host string
	// Profile is what a node needs that says nothing of its own.
	Profile spec.Resources
	// Planned are the nodes, which are given their hosts; Configured are they as the operator wrote them.
	Planned    []plan.Node
	Configured []Node
}

// Node is a node as the operator wrote it.
type Node struct {
	// Path is the configuration key of the node, or of the pool where the node has nothing of its own.
	Path string
	// Host is what the node itself states, Pin the host that it must have; empty: none.
	Host, Pin string
}

// host is a host while nodes are placed.
type host struct {
	plan.HostAllocation

	controls, workers int
	// pinned is what nodes need that name this host and are not placed yet.
	pinned         spec.Resources
	pinnedControls int
}

// room is what is left of a host.
func (h *host) room() spec.Resources {
	return spec.Resources{
		VCPU:      h.Capacity.VCPU - h.Reserve.VCPU - h.Used.VCPU - h.pinned.VCPU,
		MemoryMiB: h.Capacity.MemoryMiB - h.Reserve.MemoryMiB - h.Used.MemoryMiB - h.pinned.MemoryMiB,
	}
}

func (h *host) fits(need spec.Resources) bool {
	left := h.room()

	return !h.Limited || need.VCPU <= left.VCPU && need.MemoryMiB <= left.MemoryMiB
}

// needOf is what a node takes of its host.
func needOf(n *plan.Node) spec.Resources {
	return spec.Resources{VCPU: n.Cores, MemoryMiB: n.MemoryMiB}
}

func (h *host) reservePin(n plan.Node, sign int) {
	h.pinned = h.pinned.Plus(spec.Resources{VCPU: sign * n.Cores, MemoryMiB: sign * n.MemoryMiB})

	if n.Role == spec.RoleControlPlane {
		h.pinnedControls += sign
	}
}
