package nodesjson

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
	"talos-proxmox/stacks/config"
)

// Result is a stack file with the addresses of a nodes.json in it.
type Result struct {
	// Text is the whole file. Outside the block of pools it is as it was.
	Text []byte
	// Pools is that block by itself.
	Pools string
	// Notes say what of nodes.json is not in the stack file.
	Notes []string
}

// Apply states each node's address in a stack file, under the node itself: an address that DHCP gave follows no range.
// The stack's addressing must be reported. Root is where the stack file's patch files are. The error holds everything
// that does not fit.
func (f *File) Apply(stackFile []byte, root string) (*Result, error) {
	// What the addresses are missing for is expected to be wrong.
	c, err := config.LoadText(stackFile, root)

	var problems spec.Problems
	if err != nil && !errors.As(err, &problems) {
		return nil, err
	}

	if a := c.Network.Addressing; a != spec.AddressingReported {
		return nil, fmt.Errorf("network.addressing must be reported for the addresses of nodes.json (given: %s); "+
			"set it, or leave the addresses to what it says", a)
	}

	chosen, notes, err := f.assign(c)
	if err != nil {
		return nil, err
	}

	b, err := find(stackFile)
	if err != nil {
		return nil, err
	}

	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		if err := state(value(b.pools, name), c.Pools[name], chosen[name]); err != nil {
			return nil, fmt.Errorf("pools.%s: %w", name, err)
		}
	}

	text, err := b.text()
	if err != nil {
		return nil, err
	}

	r := &Result{Text: b.file(text), Pools: text, Notes: append(notes, f.compare(c)...)}
	_, err = config.LoadText(r.Text, root)

	return r, err
}

// assign finds the nodes of the stack that the file speaks of: addresses by pool and the node's number.
func (f *File) assign(c config.Config) (chosen map[string]map[string]string, notes []string, err error) {
	type node struct{ pool, number string }

	of := map[spec.Role]map[string]node{spec.RoleControlPlane: {}, spec.RoleWorker: {}}
	chosen = map[string]map[string]string{}

	for name, pool := range c.Pools {
		chosen[name] = map[string]string{}

		for number, called := range planner.NodeNames(pool, c.Cluster.Name, name) {
			of[pool.Role][called] = node{name, number}
		}
	}

	var errs []error

	for _, group := range []struct {
		role  spec.Role
		nodes []Node
	}{{spec.RoleControlPlane, f.ControlPlanes}, {spec.RoleWorker, f.Workers}} {
		known := of[group.role]

		for _, n := range group.nodes {
			at, there := known[n.Name]

			switch {
			case !there:
				errs = append(errs,
					fmt.Errorf("nodes.json: %s is no %s of the stack, which has %s; correct the name, or pools.<name>.names",
						n.Name, group.role, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
			case n.DHCP == "" && n.Address == "":
				notes = append(notes, n.Name+" has no address in nodes.json")
			case n.DHCP == "":
				chosen[at.pool][at.number] = n.Address
			default:
				chosen[at.pool][at.number] = n.DHCP

				if n.Address != "" && n.Address != n.DHCP {
					notes = append(notes, n.Name+" is planned to have the address "+n.Address+" later, and has "+n.DHCP+
						" now, which was used")
				}
			}

			delete(known, n.Name)
		}

		for _, left := range slices.Sorted(maps.Keys(known)) {
			at := known[left]
			notes = append(notes, left+" is not in nodes.json")

			if c.Pools[at.pool].Addresses != "" {
				errs = append(errs,
					fmt.Errorf("pools.%s.addresses: is replaced by the addresses in nodes.json, but %s is not in it; add it there, "+
						"or set pools.%s.nodes instead of a range", at.pool, left, at.pool))
			}
		}
	}

	return chosen, notes, errors.Join(errs...)
}

// compare says what else the file holds and the stack file does not.
func (f *File) compare(c config.Config) []string {
	var notes []string

	endpoint := c.Cluster.Endpoint
	first := len(f.ControlPlanes) > 0 && f.ControlPlaneVIP == f.ControlPlanes[0].DHCP

	if f.ControlPlaneVIP != "" && f.ControlPlaneVIP != endpoint.Address && f.ControlPlaneVIP != endpoint.Host && !first {
		notes = append(notes, "control_plane_vip "+f.ControlPlaneVIP+
			" is not written: set it in cluster.endpoint, with the mode that it has")
	}

	if f.LoginServer != "" && (c.Tailscale == nil || c.Tailscale.LoginServer != f.LoginServer) {
		notes = append(notes, "headscale_login_server "+f.LoginServer+" is not written: set it in tailscale.loginServer")
	}

	return notes
}

// state writes addresses into the block of a pool.
func state(block *yaml.Node, pool spec.Pool, addresses map[string]string) error {
	if len(addresses) == 0 {
		return nil
	}

	key := "nodes"
	if pool.GPUs != nil {
		key = "gpus"
	}

	if pool.Count != nil && index(block, "count") >= 0 {
		// The numbers 1 to count are the same nodes.
		nodes := &yaml.Node{Kind: yaml.MappingNode}
		for n := range *pool.Count {
			put(nodes, quoted(n+1), empty())
		}

		replace(block, "count", key, nodes)
	}

	nodes := value(block, key)

	for _, number := range slices.Sorted(maps.Keys(addresses)) {
		node := value(nodes, number)

		switch {
		case node == nil || node.Kind == yaml.AliasNode:
			return errors.New("is shared with another part of the file, or encrypted: write it out")
		case node.Kind != yaml.MappingNode:
			*node = *empty()
		}

		remove(node, "address")
		put(node, word("address"), word(addresses[number]))
	}

	remove(block, "addresses")

	return nil
}
