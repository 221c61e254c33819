package proxmoxvm

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// ruled is a Proxmox VE with rules of high availability.
type ruled struct {
	Proxmox

	rules    []proxmoxapi.HARule
	comments map[string]string
	set      []proxmoxapi.HARule
	deleted  []string
}

func (r *ruled) HARules(context.Context) ([]proxmoxapi.HARule, error) { return r.rules, nil }

func (r *ruled) HAComments(context.Context) (map[string]string, error) { return r.comments, nil }

func (r *ruled) SetHARule(_ context.Context, rule proxmoxapi.HARule) error {
	r.set = append(r.set, rule)

	return nil
}

func (r *ruled) DeleteHARule(_ context.Context, name string) error {
	r.deleted = append(r.deleted, name)

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

	for name, c := range map[string]struct {
		node    plan.Node
		rules   []proxmoxapi.HARule
		set     []proxmoxapi.HARule
		deleted []string
		want    string
	}{
		"none yet":            {node: placed, set: []proxmoxapi.HARule{fresh}},
		"as it is to be":      {node: placed, rules: []proxmoxapi.HARule{ours}},
		"other hosts":         {node: placed, rules: []proxmoxapi.HARule{moved}, set: []proxmoxapi.HARule{ours}},
		"not stated any more": {node: free, rules: []proxmoxapi.HARule{ours}, deleted: []string{"c-w"}},
		"of others":           {node: placed, rules: []proxmoxapi.HARule{theirs}, want: "is not of this cluster"},
		"with another VM":     {node: placed, rules: []proxmoxapi.HARule{foreign}, want: "is not of this cluster"},
		"of a group":          {node: grouped, rules: []proxmoxapi.HARule{group}, set: []proxmoxapi.HARule{joined}},
		"in its group":        {node: grouped, rules: []proxmoxapi.HARule{joined}},
		"no such group":       {node: grouped, want: "there is no rule ha-group-racks"},
	} {
		t.Run(name, func(t *testing.T) {
			proxmox := &ruled{rules: c.rules, comments: map[string]string{"vm:401": haComment(placed), "vm:7001": "c"}}
			h := &HARules{
				Plan:    &plan.Plan{Pools: []plan.PlannedPool{{Name: "w", Nodes: []plan.Node{c.node}}}},
				Proxmox: proxmox, Progress: func(string) {},
			}

			err := h.Apply(t.Context(), inputs(map[string]any{"resourceId": "vm:401"}))
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}

			assert.Equal(t, c.set, proxmox.set)
			assert.Equal(t, c.deleted, proxmox.deleted)
		})
	}

	assert.Empty(t, haComment(free))
	assert.Equal(t, "talos-proxmox cluster c pool w: hosts pve1", haComment(placed))
}
