package planview

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
)

// large is a plan of many nodes.
func large(t testing.TB) *plan.Plan {
	t.Helper()

	s := spec.Spec{
		Cluster:   spec.Cluster{Name: "large <&>", Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}},
		Network:   spec.Network{CIDR: "10.0.0.0/8", Gateway: "10.0.0.1"},
		Placement: spec.Placement{Reserve: spec.Resources{VCPU: 4, MemoryMiB: 16384}},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(5), Addresses: "10.0.0.11-15"},
			"worker":  {Role: spec.RoleWorker, Count: new(400), VMIDs: "1000-1999", Addresses: "10.1.0.0-10.1.255.255"},
		},
	}
	s.Cluster.Name = "large"

	for i := range 24 {
		capacity := spec.Resources{VCPU: 40 + 10*(i%3), MemoryMiB: 131072}
		s.Proxmox.Hosts = append(s.Proxmox.Hosts, spec.Host{Name: fmt.Sprintf("pve%02d", i), Capacity: &capacity})
	}

	p, err := planner.Plan(s)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// TestSVGIsWellFormed: every node is in the picture once, and a reader of XML takes it.
func TestSVGIsWellFormed(t *testing.T) {
	p := large(t)
	p.Cluster = `<script>"&`

	svg := SVG(p)
	dec := xml.NewDecoder(strings.NewReader(svg))
	squares := 0

	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}

		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}

		if e.Name.Local == "script" {
			t.Error("a name became an element")
		}

		for _, a := range e.Attr {
			if e.Name.Local == "rect" && a.Name.Local == "rx" && a.Value == "3" {
				squares++
			}
		}
	}

	// And four squares of the legend.
	if want := len(p.Nodes()) + 4; squares != want {
		t.Errorf("%d squares, want %d", squares, want)
	}

	if path := os.Getenv("PLANVIEW_OUT"); path != "" {
		if err := os.WriteFile(path, []byte(SVG(large(t))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
