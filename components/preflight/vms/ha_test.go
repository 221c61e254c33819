package vms

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/harules"
	"talos-proxmox/components/spec"
)

// ruledVMs is a Proxmox VE 9 with rules of high availability.
type ruledVMs struct {
	preflighttest.Healthy

	rules    []proxmoxapi.HARule
	comments map[string]string
}

func (r ruledVMs) HARules(context.Context) ([]proxmoxapi.HARule, error) { return r.rules, nil }

func (r ruledVMs) HAComments(context.Context) (map[string]string, error) { return r.comments, nil }

// TestHARulesHeal: rules that are not as they were set are set again by a mark that changes one HA resource; what the
// update sets anyway needs none.
func TestHARulesHeal(t *testing.T) {
	pool := func(change func(*plan.Node)) plan.PlannedPool {
		p := plan.PlannedPool{Name: "w"}

		for id := 401; id <= 402; id++ {
			n := plan.Node{Name: map[int]string{401: "c-w-1", 402: "c-w-2"}[id], Cluster: "c", Pool: "w", VMID: id}
			change(&n)
			p.Nodes = append(p.Nodes, n)
		}

		return p
	}
	placed := pool(func(n *plan.Node) { n.HA = &spec.HA{Hosts: []string{"pve1"}} })
	apart := pool(func(n *plan.Node) { n.HA = &spec.HA{Apart: true} })
	grouped := pool(func(n *plan.Node) { n.HAGroup = "racks" })
	free := pool(func(n *plan.Node) { n.HA = &spec.HA{} })

	one := apart
	one.Nodes = apart.Nodes[:1]

	both := []string{"vm:401", "vm:402"}
	ours := proxmoxapi.HARule{
		Name: "c-w", Kind: proxmoxapi.HANodes, Comment: "talos-proxmox cluster c pool w", Resources: both, Nodes: []string{"pve1"},
	}
	change := func(r proxmoxapi.HARule, change func(*proxmoxapi.HARule)) []proxmoxapi.HARule {
		change(&r)

		return []proxmoxapi.HARule{r}
	}
	pair := proxmoxapi.HARule{Name: "c-w-apart", Kind: proxmoxapi.HAApart, Comment: ours.Comment, Resources: both}
	racks := proxmoxapi.HARule{Name: "ha-group-racks", Kind: proxmoxapi.HANodes, Resources: append([]string{"vm:9"}, both...)}

	const (
		again = "pools.w.ha: the rules of high availability differ from the configuration: this update sets them " +
			"again (given: "
		last = "the rule ha-group-racks of high availability already places these VMs and no others, and does not " +
			"belong to this cluster: Proxmox VE allows a VM in only one such rule (given: c-w-1, c-w-2); run " +
			"'ha-manager rules remove " +
			"ha-group-racks' on a host, then 'pulumi up' again"
	)

	for name, c := range map[string]struct {
		pool          plan.PlannedPool
		rules         []proxmoxapi.HARule
		comments      func(n plan.Node) string // nil: as they are to be
		mark          int
		warn, problem string
	}{
		"as they were set": {pool: placed, rules: []proxmoxapi.HARule{ours}},
		"a mark stays": {
			pool: placed, rules: []proxmoxapi.HARule{ours}, mark: 2,
			comments: func(n plan.Node) string { return harules.Comment(n, 2) },
		},
		"gone": {pool: placed, mark: 1, warn: again + "c-w)"},
		"gone again": {
			pool: placed, mark: 3, warn: again + "c-w)",
			comments: func(n plan.Node) string { return harules.Comment(n, 2) },
		},
		"other hosts": {
			pool: placed, rules: change(ours, func(r *proxmoxapi.HARule) { r.Nodes = []string{"pve2"} }), mark: 1,
			warn: again + "c-w)",
		},
		"strict": {
			pool: placed, rules: change(ours, func(r *proxmoxapi.HARule) { r.Strict = true }), mark: 1, warn: again + "c-w)",
		},
		"a VM is not in it": {
			pool: placed, rules: change(ours, func(r *proxmoxapi.HARule) { r.Resources = both[:1] }), mark: 1,
			warn: again + "c-w)",
		},
		"a VM leaves": {
			pool:  placed,
			rules: change(ours, func(r *proxmoxapi.HARule) { r.Resources = append([]string{"vm:403"}, both...) }),
		},
		"not wanted any more": {pool: free, rules: []proxmoxapi.HARule{ours}, mark: 1, warn: again + "c-w)"},
		"nothing is wanted":   {pool: free},
		"not apart":           {pool: apart, mark: 1, warn: again + "c-w-apart)"},
		"one of two leaves": {
			pool: one, rules: []proxmoxapi.HARule{pair}, mark: 1, warn: again + "c-w-apart)",
		},
		"set by this update": {
			pool: placed, comments: func(plan.Node) string { return "talos-proxmox cluster c pool w: hosts pve2" },
		},
		"of others": {
			pool: placed, rules: change(ours, func(r *proxmoxapi.HARule) { r.Comment = "mine" }),
			warn: "pools.w.ha: needs the rule c-w, which does not belong to this cluster and is not changed " +
				"(given: mine); rename or " +
				"remove it",
		},
		"in its group": {pool: grouped, rules: []proxmoxapi.HARule{racks}},
		"not in it":    {pool: grouped, rules: change(racks, func(r *proxmoxapi.HARule) { r.Resources = both[:1] }), mark: 1, warn: again + "ha-group-racks)"},
		"no such group": {pool: grouped, problem: "pools.w.haGroup: is a group of Proxmox VE 8: this version has " +
			"rules instead, and no rule is called ha-group-racks (given: racks); set ha.hosts instead"},
		"leave a group": {
			pool: placed, rules: []proxmoxapi.HARule{racks}, comments: func(plan.Node) string { return "" },
		},
		"the last of a group": {
			pool: placed, rules: change(racks, func(r *proxmoxapi.HARule) { r.Resources = both }),
			comments: func(plan.Node) string { return "" }, problem: "pools.w.ha: " + last,
		},
	} {
		t.Run(name, func(t *testing.T) {
			comments := map[string]string{}

			for _, n := range c.pool.Nodes {
				comments[harules.SID(n)] = harules.Comment(n, 0)
				if c.comments != nil {
					comments[harules.SID(n)] = c.comments(n)
				}
			}

			p := &plan.Plan{Cluster: "c", Distribution: spec.DistributionTalos, Pools: []plan.PlannedPool{c.pool}}
			s := New(checks.New(p, ruledVMs{rules: c.rules, comments: comments}))
			s.Major = 9
			require.NoError(t, s.CheckHA(t.Context()))

			assert.Equal(t, c.mark, s.HAMarks[c.pool.Nodes[0].Name])

			var warned, refused string
			for _, w := range s.Warnings {
				warned += w.String()
			}

			for _, problem := range s.Problems {
				refused += problem.String()
			}

			assert.Equal(t, c.warn, warned)
			assert.Equal(t, c.problem, refused)
		})
	}
}

// TestLastOfGroup: a rule that was a group would be deleted with its last VM, and nothing makes it again.
func TestLastOfGroup(t *testing.T) {
	n := plan.Node{Name: "c-w-1", Cluster: "c", Pool: "w", VMID: 401, HAGroup: "racks"}
	p := &plan.Plan{
		Cluster: "c", Distribution: spec.DistributionTalos, Replace: []string{n.Name},
		Pools: []plan.PlannedPool{{Name: "w", Nodes: []plan.Node{n}}},
	}

	for _, c := range []struct {
		resources []string
		want      string
	}{
		{[]string{"vm:401", "vm:9"}, ""},
		{[]string{"vm:401"}, "pools.w.haGroup: the rule ha-group-racks has no other VM, and Proxmox VE deletes it with the " +
			"last one (given: racks); set ha.hosts instead"},
	} {
		s := New(checks.New(p, ruledVMs{
			rules:    []proxmoxapi.HARule{{Name: "ha-group-racks", Kind: proxmoxapi.HANodes, Resources: c.resources}},
			comments: map[string]string{"vm:401": harules.Comment(n, 0)},
		}))
		s.Major = 9
		require.NoError(t, s.CheckHA(t.Context()))

		var found string
		for _, problem := range s.Replacements[n.Name] {
			found += problem.String()
		}

		assert.Equal(t, c.want, found)
	}
}

// TestHAWithLocalDisks: high availability of VMs with local disks is warned of, once for a pool and datastore.
func TestHAWithLocalDisks(t *testing.T) {
	const (
		local = ": has no effect when a host is lost: datastore zfs is not shared, and the VMs cannot start on another " +
			"host without their disks (given: zfs); place the disks on shared storage (disk.datastore), or replicate them " +
			"('pvesr', on ZFS): the VMs then start from the last copy"
		unknown = "pools.w.ha: could not determine whether the datastores of its disks are shared: broken"
	)

	managed := func(n *plan.Node) { n.HA = &spec.HA{} }

	for name, c := range map[string]struct {
		node   func(*plan.Node)
		shared map[string]bool
		err    error
		there  bool
		want   []string
		fails  bool
	}{
		"local":         {node: managed, shared: map[string]bool{"zfs": false}, want: []string{"pools.w.ha" + local}},
		"in a group":    {node: func(n *plan.Node) { n.HAGroup = "racks" }, shared: map[string]bool{"zfs": false}, want: []string{"pools.w.haGroup" + local}},
		"there already": {node: managed, shared: map[string]bool{"zfs": false}, there: true},
		"shared":        {node: managed, shared: map[string]bool{"zfs": true}},
		"not seen":      {node: managed, shared: map[string]bool{"ceph": true}},
		"nothing seen":  {node: managed, shared: map[string]bool{}},
		"not wanted":    {node: func(*plan.Node) {}, shared: map[string]bool{"zfs": false}},
		"not read":      {node: managed, err: errors.New("broken"), want: []string{unknown}},
		"without reply": {node: managed, err: proxmoxapi.ErrUnreachable, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Pools: []plan.PlannedPool{{Name: "w"}}}

			for range 2 {
				n := plan.Node{Pool: "w", Disks: []plan.Disk{{Datastore: "zfs"}, {Datastore: "zfs"}}}
				c.node(&n)
				p.Pools[0].Nodes = append(p.Pools[0].Nodes, n)
			}

			s := New(checks.New(p, &preflighttest.ManyHosts{Shared: c.shared, SharedErr: c.err}))
			s.Absent[0] = !c.there
			require.Equal(t, c.fails, s.warnLocalDisks(t.Context()) != nil)

			var said []string
			for _, w := range s.Warnings {
				said = append(said, w.String())
			}

			assert.Equal(t, c.want, said)
			assert.Empty(t, s.Problems)
		})
	}
}
