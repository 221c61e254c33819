package preflight

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// oneFactory has these extensions, or does not answer.
type oneFactory struct {
	quietNetwork

	names []string
	err   error
	asked *int
}

func (f oneFactory) Extensions(context.Context, string, string) ([]string, error) {
	*f.asked++

	return f.names, f.err
}

// TestExtensions: what the factory does not have is refused with the nearest that it has, where it is set; a factory
// that does not answer is warned of, and asked once.
func TestExtensions(t *testing.T) {
	t.Parallel()

	image := func(names ...string) plan.BootImage {
		return plan.BootImage{FactoryURL: "https://factory.lan", Extensions: names}
	}
	p := &plan.Plan{Talos: "v1.12.4", Pools: []plan.PlannedPool{
		{Name: "control", Nodes: make([]plan.Node, 1), Image: image("qemu-guest-agnet", "tailscale", "i915-ucode")},
		{Name: "gpu", Nodes: make([]plan.Node, 1), Image: image("acme/other", "qemu-guest-agnet", "tailscale")},
		{Name: "empty", Image: image("qemu-guest-agnet", "nothing")},
	}}
	asked := 0
	known := []string{"siderolabs/qemu-guest-agent", "siderolabs/tailscale", "siderolabs/i915", "acme/thing"}
	c := newChecker(p, nil, oneFactory{names: known, asked: &asked})

	require.NoError(t, c.checkExtensions(t.Context()))
	assert.Equal(t, 1, asked)
	assert.Empty(t, c.Warnings)
	assert.Equal(t, spec.Problems{
		{
			Path: "image.factory.extensions", Rule: "must be an extension that the factory has for Talos v1.12.4",
			Value: "qemu-guest-agnet", Remedy: `did you mean "qemu-guest-agent"?`,
		},
		{
			Path: "pools.gpu.image.extensions", Rule: "must be an extension that the factory has for Talos v1.12.4",
			Value: "acme/other", Remedy: "see https://factory.lan/version/v1.12.4/extensions/official",
		},
	}, c.Problems.Unique())

	c = newChecker(p, nil, oneFactory{err: errors.New("no route to host"), asked: &asked})
	require.NoError(t, c.checkExtensions(t.Context()))
	assert.Equal(t, 2, asked)
	assert.Empty(t, c.Problems)
	assert.Equal(t, spec.Problems{{
		Path:  "image.factory",
		Rule:  "could not be queried for its extensions, which were not checked: no route to host",
		Value: "https://factory.lan",
	}}, c.Warnings)
}
