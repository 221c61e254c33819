package changes

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout/talos/cluster"
)

// TestDefaultInstaller: nodes of which no extensions are stated keep those that they have, though their installer is
// the Image Factory's from Talos 1.14 on.
func TestDefaultInstaller(t *testing.T) {
	for name, c := range map[string]struct {
		image plan.BootImage
		want  bool
	}{
		"nothing is stated":       {plan.BootImage{}, true},
		"a schematic":             {plan.BootImage{SchematicID: "aa"}, false},
		"extensions":              {plan.BootImage{Extensions: []string{"iscsi-tools"}}, false},
		"an image of a factory's": {plan.BootImage{FactoryURL: "https://factory.talos.dev"}, false},
	} {
		n := plan.Node{Name: "a-1", Pool: "a"}
		r := &Changes{Cluster: &cluster.Cluster{}}
		r.Plan = &plan.Plan{Pools: []plan.PlannedPool{{Name: "a", Image: c.image, Nodes: []plan.Node{n}}}}

		assert.Equal(t, c.want, r.defaultInstaller(n), name)
	}
}

// TestCheckSecureBoot: nothing is installed that would not boot, and nothing that is not what was stated.
func TestCheckSecureBoot(t *testing.T) {
	on, off := new(true), new(false)

	for _, same := range [][2]*bool{{on, on}, {off, off}, {nil, on}, {nil, off}, {on, nil}, {off, nil}, {nil, nil}} {
		assert.NoError(t, checkSecureBoot(same[0], same[1]))
	}

	require.EqualError(t, checkSecureBoot(on, off), "image.secureBoot: it was booted with SecureBoot, and would not start "+
		"the unsigned system that is to be installed; nothing was sent to it; set the key to true, or use an image without "+
		"SecureBoot")
	require.EqualError(t, checkSecureBoot(off, on), "image.secureBoot: it was booted without SecureBoot: its image "+
		"does not support SecureBoot, or its firmware has not enrolled the keys of the image; nothing was sent to "+
		"it; set the key to false, or use "+
		"an image for SecureBoot and an EFI disk without keys")
}
