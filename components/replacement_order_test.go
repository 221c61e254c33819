package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

func TestReplacementOrder(t *testing.T) {
	a, b, c := &pulumi.ResourceState{}, &pulumi.ResourceState{}, &pulumi.ResourceState{}

	p := &plan.Plan{Replace: []string{"c-1"}, Pools: []plan.PlannedPool{
		{Nodes: []plan.Node{{Name: "c-1", Role: spec.RoleControlPlane}}},
		{Nodes: []plan.Node{{Name: "w-1", Role: spec.RoleWorker}}},
	}}
	assert.Nil(t, newReplacementOrder(p), "no worker is replaced")

	p.Replace = []string{"w-1"}
	one := newReplacementOrder(p)
	assert.Empty(t, one.next())
	one.add(a)
	assert.Equal(t, []pulumi.Resource{a}, one.next())
	one.add(b)
	assert.Same(t, b, one.next()[0])

	p.MaxUnavailable = 2
	two := newReplacementOrder(p)
	two.add(a)
	assert.Empty(t, two.next())
	two.add(b)
	assert.Same(t, a, two.next()[0])
	two.add(c)
	assert.Same(t, b, two.next()[0])

	var none *replacementOrder
	none.add(a)
	assert.Empty(t, none.next())
}

func TestReplacedFirst(t *testing.T) {
	nodes := func(names ...string) (all []plan.Node) {
		for _, name := range names {
			all = append(all, plan.Node{Name: name})
		}

		return all
	}
	p := &plan.Plan{Replace: []string{"b-2"}, Pools: []plan.PlannedPool{
		{Name: "a", Nodes: nodes("a-1", "a-2")},
		{Name: "b", Nodes: nodes("b-1", "b-2", "b-3")},
		{Name: "c", Nodes: nodes("c-1")},
	}}

	registered := namesIn(replacedFirst(p, p.Pools))
	assert.Equal(t, []string{"b-2", "b-1", "b-3", "a-1", "a-2", "c-1"}, registered)

	planned := namesIn(p.Pools)
	inPlanOrder(p, registered, func(name string) string { return name })
	assert.Equal(t, planned, registered, "the plan is as it was, too")
}

// namesIn are those of the nodes of pools.
func namesIn(pools []plan.PlannedPool) (all []string) {
	for _, pool := range pools {
		for _, n := range pool.Nodes {
			all = append(all, n.Name)
		}
	}

	return all
}
