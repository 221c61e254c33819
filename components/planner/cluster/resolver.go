// Package cluster decides what holds for a whole cluster: versions, networks of pods, the endpoint, access, add-ons,
// backups. What depends on pools and nodes is in package planner.
package cluster

import (
	"net/netip"

	"talos-proxmox/components/planner/checks"
)

// Resolver decides what holds for a whole cluster.
type Resolver struct{ checks.Checker }

// Prefixes reads networks; none mean the network of the nodes.
func (r *Resolver) Prefixes(path string, texts []string, network netip.Prefix) []netip.Prefix {
	var found []netip.Prefix

	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			r.Problems.Add(checks.At(path, i), "must be a network in CIDR form", text, "write it like 192.168.0.0/24")
		}

		found = append(found, prefix.Masked())
	}

	if len(found) == 0 && network.IsValid() {
		return []netip.Prefix{network}
	}

	return found
}
