package talosimage

import (
	"path/filepath"
	"testing"

	"github.com/siderolabs/image-factory/pkg/schematic"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/tests/golden"
)

// TestSchematic: what is posted is what the factory reads, and the id is the one that it gives.
func TestSchematic(t *testing.T) {
	p := plantest.New(t, plantest.Atlas(plantest.Talos111))
	image := p.Pools[0].Image

	text, id, err := Schematic(p, image, p.Pools[0].Nodes[0])
	if err != nil {
		t.Fatal(err)
	}

	golden.Check(t, filepath.Join("testdata", "schematic.yaml"), text)

	read, err := schematic.Unmarshal([]byte(text))
	if err != nil {
		t.Fatal(err)
	}

	if again, err := read.ID(); err != nil || again != id {
		t.Errorf("the factory would call it %s, not %s: %v", again, id, err)
	}

	if _, other, err := Schematic(p, p.Pools[1].Image, p.Pools[1].Nodes[0]); err != nil || other == id {
		t.Errorf("two nodes with one schematic: %v", err)
	}
}
