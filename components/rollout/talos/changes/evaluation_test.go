package changes

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout/talos/cluster"
)

// TestDefaultInstaller: nodes of which no extensions are set keep those that they have, though their installer is
// the Image Factory's from Talos 1.14 on.
func TestDefaultInstaller(t *testing.T) {
	for name, c := range map[string]struct {
		image plan.BootImage
		want  bool
	}{
		"nothing is set":          {plan.BootImage{}, true},
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
