package vms

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
)

// TestTagsOfOtherClusters: a tag that is the name of another cluster is refused, and one that several clusters share is
// not.
func TestTagsOfOtherClusters(t *testing.T) {
	const refused = "pools.control.tags: must not hold the name of another cluster on this Proxmox VE, which would " +
		"treat the nodes as its own: home-worker-1 (VMID 701 on host pve) belongs to cluster home (given: home); " +
		"choose another tag " +
		"(pools.control.tags, defaults.tags)"

	for name, c := range map[string]struct {
		tags []string // of the plan's nodes
		vm   proxmoxapi.VM
		want string
	}{
		"its only tag": {
			[]string{"home"}, proxmoxapi.VM{ID: 701, Name: "home-worker-1", Tags: []string{"home", "talos", "worker"}}, refused,
		},
		"with a tag more": {
			[]string{"home"},
			proxmoxapi.VM{ID: 701, Name: "home-worker-1", Tags: []string{"home", "lan", "talos", "worker"}},
			refused,
		},
		"shared by both": {
			[]string{"lan"}, proxmoxapi.VM{ID: 701, Name: "home-worker-1", Tags: []string{"home", "lan", "talos", "worker"}}, "",
		},
		"of another distribution": {
			[]string{"home"}, proxmoxapi.VM{ID: 701, Name: "home-worker-1", Tags: []string{"home", "k3s", "worker"}}, "",
		},
		"of no cluster":  {[]string{"home"}, proxmoxapi.VM{ID: 701, Name: "nas", Tags: []string{"home"}}, ""},
		"of ours":        {[]string{"home"}, proxmoxapi.VM{ID: 401, Name: "c-control-1", Tags: []string{"home", "talos", "worker"}}, ""},
		"of one we left": {[]string{"home"}, proxmoxapi.VM{ID: 701, Name: "home-1", Tags: []string{"c", "home", "talos", "worker"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.Template()
			for i := range p.Pools[0].Nodes {
				p.Pools[0].Nodes[i].Tags = append([]string{"c", "controlplane", "talos"}, c.tags...)
			}

			c.vm.Host = "pve"
			checker := New(checks.New(p, nil))
			checker.VMs = []proxmoxapi.VM{c.vm}
			require.NoError(t, checker.CheckTags(t.Context()))

			if c.want == "" {
				require.Empty(t, checker.Problems)
			} else {
				require.EqualError(t, checker.Problems.Err(), "the configuration has 1 problem:\n  - "+c.want)
			}
		})
	}
}
