package machineconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// reservedSpec is a cluster whose nodes have DHCP reservations.
func reservedSpec() spec.Spec {
	return spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "pve"}}},
		Cluster: spec.Cluster{Name: "home", Versions: plantest.Talos112},
		Image: spec.Image{Source: spec.SourceTemplate, Template: spec.TemplateImage{
			Control: "talos-v1.12.4-base", Worker: "talos-v1.12.4-base", GPUWorker: "talos-v1.12.4-base",
		}},
		Network: spec.Network{CIDR: "10.0.0.0/16", Gateway: "10.0.0.1"},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"},
			"worker": {Role: spec.RoleWorker, Addresses: "10.0.0.21-22", Nodes: map[string]spec.NodeSpec{
				"1": {MAC: "02:00:00:00:00:21", Addressing: spec.AddressingStatic}, "2": {},
			}},
		},
	}
}

// TestStaticNode: one node's reserved address goes into its configuration, and no other configuration changes.
func TestStaticNode(t *testing.T) {
	p := plantest.New(t, reservedSpec())
	workers := p.Pools[1].Nodes

	for i, want := range []string{`machine:
  network:
    interfaces:
      - deviceSelector:
          hardwareAddr: "02:00:00:00:00:21"
        addresses:
          - 10.0.0.21/16
        routes:
          - gateway: 10.0.0.1
    nameservers:
      - 1.1.1.1
      - 8.8.8.8
`, ""} {
		patches, err := NodePatches(p, workers[i])
		if err != nil {
			t.Fatal(err)
		}

		got := ""

		for _, patch := range patches {
			if strings.Contains(patch, "machine:") {
				got = patch
			}
		}

		if diff := cmp.Diff(want, strings.TrimPrefix(got, "version: v1alpha1\n")); diff != "" {
			t.Error(diff)
		}
	}

	if _, err := Check(p); err != nil {
		t.Error(err)
	}
}

// TestGPUModules: a driver's modules are loaded where the driver is, and nowhere else.
func TestGPUModules(t *testing.T) {
	s := reservedSpec()
	s.Pools["gpu"] = spec.Pool{
		Role: spec.RoleWorker, Addresses: "10.0.0.31",
		GPUs: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0", NodeSpec: spec.NodeSpec{Host: "pve"}}},
		Image: spec.PoolImage{Schematic: &spec.Schematic{Extensions: []string{
			"nvidia-open-gpu-kernel-modules-lts",
			"nvidia-container-toolkit-lts",
		}}},
	}

	p := plantest.New(t, s)

	const want = `  kernel:
    modules:
      - name: nvidia
      - name: nvidia_uvm
      - name: nvidia_drm
      - name: nvidia_modeset
`

	for _, pool := range p.Pools {
		patches, err := Patches(p, pool)
		if err != nil {
			t.Fatal(err)
		}

		all := strings.Join(patches, "---\n")
		if has := strings.Contains(all, want) && strings.Contains(all, `net.core.bpf_jit_harden: "1"`); has != pool.GPU {
			t.Errorf("pool %s: modules loaded: %v\n%s", pool.Name, has, all)
		}
	}

	if _, err := Check(p); err != nil {
		t.Error(err)
	}
}
