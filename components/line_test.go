package components

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
)

func TestLine(t *testing.T) {
	a, b, c := &pulumi.ResourceState{}, &pulumi.ResourceState{}, &pulumi.ResourceState{}

	one := newLine(0)
	assert.Empty(t, one.before())
	one.enter(a)
	assert.Equal(t, []pulumi.Resource{a}, one.before())
	one.enter(b)
	assert.Same(t, b, one.before()[0])

	two := newLine(2)
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
