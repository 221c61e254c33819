package machineconfig

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
)

// accepted compares everything that is rendered for a plan with a file, and lets Talos' validator read it.
func accepted(t *testing.T, name string, p *plan.Plan) {
	t.Helper()

	var b strings.Builder

	for _, pool := range p.Pools {
		shared, err := Patches(p, pool)
		if err != nil {
			t.Fatal(err)
		}

		fmt.Fprintf(&b, "# pool %s\n%s", pool.Name, strings.Join(shared, "---\n"))

		for _, n := range pool.Nodes {
			own, err := NodePatches(p, n)
			if err != nil {
				t.Fatal(err)
			}

			fmt.Fprintf(&b, "# node %s\n%s", n.Name, strings.Join(own, "---\n"))
		}
	}

	golden.Check(t, filepath.Join("testdata", name), b.String())

	for _, kind := range regexp.MustCompile(`(?m)^kind: (\w+)$`).FindAllStringSubmatch(b.String(), -1) {
		if !slices.Contains(providerKinds, kind[1]) {
			t.Errorf("the provider does not know documents of kind %s", kind[1])
		}
	}

	if warnings, err := Check(p); err != nil || len(warnings) > 0 {
		t.Errorf("Talos does not take them: %v %v", warnings, err)
	}
}

// fullConfiguration is the configuration that a node runs with: generated, and all patches applied.
func fullConfiguration(t *testing.T, p *plan.Plan, node plan.Node) talosconfig.Provider {
	t.Helper()

	cfg, err := generateBase(p, node.Role)
	if err != nil {
		t.Fatal(err)
	}

	shared, err := Patches(p, p.PoolOf(node))
	if err != nil {
		t.Fatal(err)
	}

	own, err := NodePatches(p, node)
	if err != nil {
		t.Fatal(err)
	}

	for _, patch := range append(shared, own...) {
		if cfg, err = applyPatch(cfg, patch); err != nil {
			t.Fatal(err)
		}
	}

	return cfg
}

// TestPatches: everything that is rendered for a cluster, for the two generations of Talos' documents.
func TestPatches(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			accepted(t, "patches-"+name+".yaml", plantest.New(t, plantest.Atlas(versions)))
		})
	}
}

// TestGPUs: what the driver of a GPU pool needs, where its image has one.
func TestGPUs(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": plantest.Talos111, "1.12": plantest.Talos112} {
		t.Run(name, func(t *testing.T) {
			s := plantest.Atlas(versions)
			s.Cluster.CNI = spec.CNI{}
			s.Pools = map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"},
				"gpu": {
					Role: spec.RoleWorker, Addresses: "10.0.0.31", GPUs: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}},
					Image: spec.PoolImage{Extensions: []string{"nvidia-open-gpu-kernel-modules-lts", "nvidia-container-toolkit-lts"}},
				},
			}
			accepted(t, "gpu-"+name+".yaml", plantest.New(t, s))
		})
	}
}

// TestBase: what a cluster leaves at its defaults is not in its patches.
func TestBase(t *testing.T) {
	s := plantest.Atlas(plantest.Talos112)
	s.Cluster.CNI = spec.CNI{}
	s.Image = spec.Image{}
	p := plantest.New(t, s)

	got, err := Patches(p, p.Pools[1])
	if err != nil {
		t.Fatal(err)
	}

	want := []string{`version: v1alpha1
machine:
  kubelet:
    nodeIP:
      validSubnets:
        - 10.0.0.0/16
  install:
    disk: /dev/sda
    image: factory.talos.dev/nocloud-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.12.4
`}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
