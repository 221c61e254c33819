package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
)

func TestLine(t *testing.T) {
	a, b, c := &pulumi.ResourceState{}, &pulumi.ResourceState{}, &pulumi.ResourceState{}

	p := &plan.Plan{Replace: []string{"c-1"}, Pools: []plan.PlannedPool{
		{Nodes: []plan.Node{{Name: "c-1", Role: plan.ControlPlane}}}, {Nodes: []plan.Node{{Name: "w-1", Role: plan.Worker}}},
	}}
	assert.Nil(t, newLine(p), "no worker is made anew")

	p.Replace = []string{"w-1"}
	one := newLine(p)
	assert.Empty(t, one.before())
	one.enter(a)
	assert.Equal(t, []pulumi.Resource{a}, one.before())
	one.enter(b)
	assert.Same(t, b, one.before()[0])

	p.MaxUnavailable = 2
	two := newLine(p)
	two.enter(a)
	assert.Empty(t, two.before())
	two.enter(b)
	assert.Same(t, a, two.before()[0])
	two.enter(c)
	assert.Same(t, b, two.before()[0])

	var none *line
	none.enter(a)
	assert.Empty(t, none.before())
}
