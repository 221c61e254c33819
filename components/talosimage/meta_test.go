package talosimage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/tests/golden"
)

// TestNetworkMeta compares with META key 10 as it was proven on hardware: testdata/meta-document.yaml is that text,
// with its variables filled in.
func TestNetworkMeta(t *testing.T) {
	p := plantest.New(t, plantest.Atlas(plantest.Talos111))

	got, err := NetworkMeta(p, p.Pools[0].Nodes[0])
	if err != nil {
		t.Fatal(err)
	}

	golden.Check(t, filepath.Join("testdata", "meta.yaml"), got)

	document, err := os.ReadFile("testdata/meta-document.yaml")
	if err != nil {
		t.Fatal(err)
	}

	// The same keys with the same values, none left out, and none added but the link: the document had no DHCP next to it.
	var wantTree, gotTree any
	if err := yaml.Unmarshal(document, &wantTree); err != nil {
		t.Fatal(err)
	}

	if err := yaml.Unmarshal([]byte(got), &gotTree); err != nil {
		t.Fatal(err)
	}

	delete(gotTree.(map[string]any), "links")

	if diff := cmp.Diff(wantTree, gotTree); diff != "" {
		t.Error(diff)
	}

	// And what Talos reads is the same.
	var wantSpec, gotSpec network.PlatformConfigSpec
	if err := yaml.Unmarshal(document, &wantSpec); err != nil {
		t.Fatal(err)
	}

	if err := yaml.Unmarshal([]byte(got), &gotSpec); err != nil {
		t.Fatal(err)
	}

	if len(gotSpec.Links) != 1 || gotSpec.Links[0].Name != "eth0" || !gotSpec.Links[0].Up {
		t.Errorf("Talos reads the links %+v", gotSpec.Links)
	}

	gotSpec.Links = nil

	if !wantSpec.Equal(&gotSpec) {
		t.Errorf("Talos reads %+v, want %+v", gotSpec, wantSpec)
	}
}

func TestNetworkMetaIPv6(t *testing.T) {
	s := plantest.Atlas(plantest.Talos112)
	s.Network.CIDR, s.Network.Gateway, s.Network.Nameservers = "fd00::/64", "fd00::1", []string{"fd00::53"}
	control, worker := s.Pools["control"], s.Pools["worker"]
	control.Addresses, worker.Addresses = "fd00::11-fd00::13", "fd00::21-fd00::22"
	s.Pools["control"], s.Pools["worker"] = control, worker

	p := plantest.New(t, s)

	got, err := NetworkMeta(p, p.Pools[0].Nodes[0])
	if err != nil {
		t.Fatal(err)
	}

	golden.Check(t, filepath.Join("testdata", "meta-ipv6.yaml"), got)
}
