package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
)

func TestReplacementOrder(t *testing.T) {
	a, b, c := &pulumi.ResourceState{}, &pulumi.ResourceState{}, &pulumi.ResourceState{}

	p := &plan.Plan{Replace: []string{"c-1"}, Pools: []plan.PlannedPool{
		{Nodes: []plan.Node{{Name: "c-1", Role: plan.ControlPlane}}}, {Nodes: []plan.Node{{Name: "w-1", Role: plan.Worker}}},
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
