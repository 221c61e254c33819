package harules

import (
	"context"
	"slices"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// ruled is a Proxmox VE with rules of high availability.
type ruled struct {
	Proxmox

	rules    []proxmoxapi.HARule
	comments map[string]string
	vms      []proxmoxapi.VM
	set      []proxmoxapi.HARule
	deleted  []string
}

func (r *ruled) HARules(context.Context) ([]proxmoxapi.HARule, error) { return r.rules, nil }

func (r *ruled) HAComments(context.Context) (map[string]string, error) { return r.comments, nil }

func (r *ruled) VMs(context.Context) ([]proxmoxapi.VM, error) { return r.vms, nil }

func (r *ruled) SetHARule(_ context.Context, rule proxmoxapi.HARule) error {
	r.set = append(r.set, rule)

	return nil
}

func (r *ruled) DeleteHARule(_ context.Context, name string) error {
	r.deleted = append(r.deleted, name)
	r.rules = slices.DeleteFunc(slices.Clone(r.rules), func(rule proxmoxapi.HARule) bool { return rule.Name == name })

	return nil
}

func TestHARules(t *testing.T) {
	node := plan.Node{Name: "c-w-1", Cluster: "c", Pool: "w", VMID: 401}
	placed := node
	placed.HA = &spec.HA{Hosts: []string{"pve1"}}
	grouped := node
	grouped.HAGroup = "racks"
	free := node
	free.HA = &spec.HA{}

	ours := proxmoxapi.HARule{
		Name: "c-w", Kind: proxmoxapi.HANodes, Comment: ruleComment(placed), Resources: []string{"vm:401"},
		Nodes: []string{"pve1"}, Digest: "d",
	}
	theirs, foreign, moved := ours, ours, ours
	theirs.Comment = "mine"
	foreign.Resources = []string{"vm:401", "vm:7001"}
	moved.Nodes = []string{"pve2"}

	fresh := ours
	fresh.Digest = ""
	group := proxmoxapi.HARule{Name: "ha-group-racks", Kind: proxmoxapi.HANodes, Resources: []string{"vm:9"}, Digest: "d"}
	joined := group
	joined.Resources = []string{"vm:9", "vm:401"}

	crowded := group
	crowded.Resources = []string{"vm:9", "vm:401"}
	last := group
	last.Resources = []string{"vm:401"}
	disabled := crowded
	disabled.Disabled = true

	// Of two VMs that leave, one says whose it is by its comment, the other by its tags.
	leaving := moved
	leaving.Resources = []string{"vm:401", "vm:402", "vm:403"}
	// The comments of a cluster of K3s with the same name read alike.
	namesake := moved
	namesake.Resources = []string{"vm:401", "vm:501"}
	former := ours
	former.Name, former.Comment = "c-old", "talos-proxmox cluster c pool old"

	for name, c := range map[string]struct {
		node    plan.Node
		rules   []proxmoxapi.HARule
		set     []proxmoxapi.HARule
		deleted []string
		want    string
	}{
		"none yet":         {node: placed, set: []proxmoxapi.HARule{fresh}},
		"as it is to be":   {node: placed, rules: []proxmoxapi.HARule{ours}},
		"other hosts":      {node: placed, rules: []proxmoxapi.HARule{moved}, set: []proxmoxapi.HARule{ours}},
		"not set any more": {node: free, rules: []proxmoxapi.HARule{ours}, deleted: []string{"c-w"}},
		"of others": {node: placed, rules: []proxmoxapi.HARule{theirs}, want: "does not belong to this " +
			"cluster"},
		"with another VM": {node: placed, rules: []proxmoxapi.HARule{foreign}, want: "does not belong to this " +
			"cluster"},
		"of a group":    {node: grouped, rules: []proxmoxapi.HARule{group}, set: []proxmoxapi.HARule{joined}},
		"in its group":  {node: grouped, rules: []proxmoxapi.HARule{joined}},
		"no such group": {node: grouped, want: "there is no rule ha-group-racks"},
		"leaves a group": {
			node: placed, rules: []proxmoxapi.HARule{crowded}, set: []proxmoxapi.HARule{group, fresh},
		},
		"the last of a group": {
			node: placed, rules: []proxmoxapi.HARule{last},
			want: "rule ha-group-racks of high availability: vm:401: a rule of high availability cannot be without " +
				"VMs, and this rule does not belong to this cluster: run 'ha-manager rules remove ha-group-racks' " +
				"on a host, then 'pulumi up' again",
		},
		"a group that is off": {node: placed, rules: []proxmoxapi.HARule{disabled}, set: []proxmoxapi.HARule{fresh}},
		"leaves a former pool": {
			node: placed, rules: []proxmoxapi.HARule{former}, set: []proxmoxapi.HARule{fresh}, deleted: []string{"c-old"},
		},
		"hosts become a group": {
			node: grouped, rules: []proxmoxapi.HARule{ours, group}, set: []proxmoxapi.HARule{joined}, deleted: []string{"c-w"},
		},
		"others leave the pool": {node: placed, rules: []proxmoxapi.HARule{leaving}, set: []proxmoxapi.HARule{ours}},
		"of a namesake":         {node: placed, rules: []proxmoxapi.HARule{namesake}, want: "does not belong to this cluster"},
		"not wanted, of others": {node: free, rules: []proxmoxapi.HARule{theirs}},
	} {
		t.Run(name, func(t *testing.T) {
			proxmox := &ruled{
				rules: c.rules, vms: []proxmoxapi.VM{
					{ID: 403, Tags: []string{"c", "talos"}}, {ID: 501, Tags: []string{"c", "k3s"}}, {ID: 7001, Tags: []string{"talos"}},
				},
				comments: map[string]string{
					"vm:401": Comment(placed, 0), "vm:402": Comment(placed, 2), "vm:501": Comment(placed, 0), "vm:7001": "c",
				},
			}
			h := &Rules{
				Plan:    &plan.Plan{Cluster: "c", Distribution: spec.DistributionTalos, Pools: []plan.PlannedPool{{Name: "w", Nodes: []plan.Node{c.node}}}},
				Proxmox: proxmox, Progress: func(string) {},
			}

			err := h.Apply(t.Context(), &pulumi.ResourceHookArgs{
				NewInputs: resource.NewPropertyMapFromMap(map[string]any{"resourceId": "vm:401"}),
			})
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}

			assert.Equal(t, c.set, proxmox.set)
			assert.Equal(t, c.deleted, proxmox.deleted)
		})
	}

	assert.Empty(t, Comment(free, 0))
	assert.Equal(t, "talos-proxmox cluster c pool w: hosts pve1", Comment(placed, 0))

	for _, n := range []plan.Node{placed, grouped, free} {
		assert.Equal(t, 3, Mark(Comment(n, 3)))
		assert.Zero(t, Mark(Comment(n, 0)))
	}
}

// changing is a Proxmox VE whose rules another changes between two reads.
type changing struct {
	ruled
	read int
	then []proxmoxapi.HARule
}

func (c *changing) HARules(ctx context.Context) ([]proxmoxapi.HARule, error) {
	if c.read++; c.read > 2 {
		c.rules = c.then
	}

	return c.ruled.HARules(ctx)
}

// TestRuleChangedMeanwhile: what another has changed since the rules were read is kept, and a rule that another has
// taken over is left alone.
func TestRuleChangedMeanwhile(t *testing.T) {
	n := plan.Node{Name: "c-w-1", Cluster: "c", Pool: "w", VMID: 401, HA: &spec.HA{Hosts: []string{"pve1"}}}
	p := &plan.Plan{Cluster: "c", Pools: []plan.PlannedPool{{Name: "w", Nodes: []plan.Node{n}}}}
	comments := map[string]string{"vm:401": Comment(n, 0)}
	rule := func(name, digest string, vms ...string) proxmoxapi.HARule {
		return proxmoxapi.HARule{Name: name, Kind: proxmoxapi.HANodes, Resources: vms, Digest: digest}
	}
	wanted := WantedRules(n, []string{"vm:401"})[1]

	grown := &changing{
		ruled: ruled{rules: []proxmoxapi.HARule{rule("racks", "a", "vm:9", "vm:401")}, comments: comments},
		then:  []proxmoxapi.HARule{rule("racks", "b", "vm:9", "vm:10", "vm:401")},
	}
	h := &Rules{Plan: p, Proxmox: grown, Progress: func(string) {}}
	require.NoError(t, h.set(t.Context(), n, wanted, comments))
	assert.Equal(t, rule("racks", "b", "vm:9", "vm:10"), grown.set[0])

	taken := &changing{
		ruled: ruled{rules: []proxmoxapi.HARule{rule("racks", "a", "vm:9", "vm:401")}, comments: comments},
		then:  []proxmoxapi.HARule{rule("racks", "b", "vm:9"), rule("c-w", "b", "vm:7001")},
	}
	h = &Rules{Plan: p, Proxmox: taken, Progress: func(string) {}}
	require.ErrorContains(t, h.set(t.Context(), n, wanted, comments), "the rule c-w of high availability does not "+
		"belong to this cluster")
	assert.Empty(t, taken.set)
}

// TestRuleNames: Proxmox VE takes only names that begin with a letter.
func TestRuleNames(t *testing.T) {
	for cluster, want := range map[string]string{"c": "c-w", "4c": "ha_4c-w", "ha-4c": "ha-4c-w"} {
		node := plan.Node{Cluster: cluster, Pool: "w", HA: &spec.HA{Hosts: []string{"pve1"}}}
		require.Equal(t, want, RuleOf(node))

		var names []string
		for _, rule := range WantedRules(node, nil) {
			names = append(names, rule.Name)
		}

		require.Equal(t, []string{want + "-apart", want}, names)

		node.HA = &spec.HA{Apart: true}
		require.Equal(t, want+"-apart", RuleOf(node))
	}
}
