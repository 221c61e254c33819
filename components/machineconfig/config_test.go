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
	"talos-proxmox/components/planner"
	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
)

// atlas is the home cluster of the examples: an image for each node.
func atlas(versions spec.Versions) spec.Spec {
	return spec.Spec{
		Proxmox: spec.Proxmox{Hosts: []spec.Host{{Name: "atlas"}}},
		Cluster: spec.Cluster{
			Name: "atlas", Versions: versions, CNI: spec.CNI{Name: spec.CNICilium, Version: "1.16.5", KubeProxy: new(false)},
		},
		Image: spec.Image{
			Platform: spec.PlatformMetal,
			Factory:  spec.FactoryImage{Extensions: []string{"tailscale", "qemu-guest-agent"}},
		},
		Network: spec.Network{
			CIDR: "10.0.0.0/16", Gateway: "10.0.0.1", Nameservers: []string{"1.1.1.1", "8.8.8.8"},
		},
		Pools: map[string]spec.Pool{
			"control": {Role: spec.RoleControlPlane, Count: new(1), Names: "talos-cp-{nn}", Addresses: "10.0.0.11-13"},
			"worker": {
				Role: spec.RoleWorker, Names: "talos-worker-{nn}", Addresses: "10.0.0.21-22",
				VMSpec: spec.VMSpec{
					Labels: map[string]string{"tier": "db", "empty": "", "node-role.kubernetes.io/worker": ""},
					Taints: map[string]string{"dedicated": "db:NoSchedule", "spot": "PreferNoSchedule"},
				},
				Nodes: map[string]spec.NodeSpec{"1": {}, "2": {
					VMSpec: spec.VMSpec{
						Annotations: map[string]string{"rack": "2"}, Labels: map[string]string{"zone": "b"},
						Disk: spec.DiskOptions{Interface: new("virtio0")},
					},
					Patches: []spec.Patch{{
						Path: "pools.worker.nodes.2.patches[0]", Origin: "node.yaml",
						Text: "machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n",
					}},
				}},
			},
		},
	}
}

var (
	talos111 = spec.Versions{Talos: "v1.11.2", Kubernetes: "v1.32.1"}
	talos112 = spec.Versions{Talos: "v1.12.4", Kubernetes: "v1.34.2"}
	talos114 = spec.Versions{Talos: "v1.14.1", Kubernetes: "v1.37.0"}
)

func planOf(t testing.TB, s spec.Spec) *plan.Plan {
	t.Helper()

	p, err := planner.Plan(s)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

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
		if cfg, err = apply(cfg, patch); err != nil {
			t.Fatal(err)
		}
	}

	return cfg
}

// TestPatches: everything that is rendered for a cluster, for the two generations of Talos' documents.
func TestPatches(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": talos111, "1.12": talos112} {
		t.Run(name, func(t *testing.T) {
			accepted(t, "patches-"+name+".yaml", planOf(t, atlas(versions)))
		})
	}
}

// TestGPUs: what the driver of a GPU pool needs, where its image has one.
func TestGPUs(t *testing.T) {
	for name, versions := range map[string]spec.Versions{"1.11": talos111, "1.12": talos112} {
		t.Run(name, func(t *testing.T) {
			s := atlas(versions)
			s.Cluster.CNI = spec.CNI{}
			s.Pools = map[string]spec.Pool{
				"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"},
				"gpu": {
					Role: spec.RoleWorker, Addresses: "10.0.0.31", GPUs: map[string]spec.GPUSpec{"1": {BDF: "0000:01:00.0"}},
					Image: spec.PoolImage{Extensions: []string{"nvidia-open-gpu-kernel-modules-lts", "nvidia-container-toolkit-lts"}},
				},
			}
			accepted(t, "gpu-"+name+".yaml", planOf(t, s))
		})
	}
}

// TestInstaller: the installer carries what the image of the first boot carries.
func TestInstaller(t *testing.T) {
	const (
		// what the factory calls an empty schematic
		plain = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
		agent = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515" // and one with the guest agent only
	)

	template := func(schematic *spec.Schematic) spec.Spec {
		s := atlas(talos112)
		s.Image = spec.Image{
			Source: spec.SourceTemplate, Template: spec.TemplateImage{Control: "9000", Worker: "9000"},
			Schematic: schematic,
		}
		s.Network.Nameservers = nil

		return s
	}

	factory := func(f spec.FactoryImage) spec.Spec {
		s := atlas(talos112)
		s.Image = spec.Image{Factory: f}

		return s
	}

	for name, test := range map[string]struct {
		spec spec.Spec
		want string
	}{
		"plain template": {template(nil), "ghcr.io/siderolabs/installer:v1.12.4"},
		"plain template of Talos 1.14": {
			func() spec.Spec {
				s := template(nil)
				s.Cluster.Versions = talos114

				return s
			}(), "factory.talos.dev/metal-installer/" + plain + ":v1.14.1",
		},
		"template with extensions": {
			template(&spec.Schematic{Extensions: []string{"siderolabs/qemu-guest-agent"}}),
			"factory.talos.dev/metal-installer/" + agent + ":v1.12.4",
		},
		"template with schematic": {
			template(&spec.Schematic{ID: plain}),
			"factory.talos.dev/metal-installer/" + plain + ":v1.12.4",
		},
		"plain factory": {factory(spec.FactoryImage{}), "factory.talos.dev/nocloud-installer/" + plain + ":v1.12.4"},
		"private factory": {
			factory(spec.FactoryImage{URL: "https://factory.example.com:8443/", Extensions: []string{"qemu-guest-agent"}}),
			"factory.example.com:8443/nocloud-installer/" + agent + ":v1.12.4",
		},
		"plain template for SecureBoot": {
			forSecureBoot(template(nil)), "factory.talos.dev/metal-installer-secureboot/" + plain + ":v1.12.4",
		},
		"template for SecureBoot, with extensions": {
			forSecureBoot(template(&spec.Schematic{Extensions: []string{"siderolabs/qemu-guest-agent"}})),
			"factory.talos.dev/metal-installer-secureboot/" + agent + ":v1.12.4",
		},
		"private factory, for SecureBoot": {
			forSecureBoot(factory(spec.FactoryImage{URL: "http://factory.lan:8080"})),
			"factory.lan:8080/nocloud-installer-secureboot/" + plain + ":v1.12.4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := planOf(t, test.spec)

			got, err := Installer(p, p.Pools[0].Image, p.Pools[0].Nodes[0])
			if err != nil || got != test.want {
				t.Errorf("got %s %v, want %s", got, err, test.want)
			}
		})
	}
}

func forSecureBoot(s spec.Spec) spec.Spec {
	s.Image.SecureBoot = true

	return s
}

// TestBase: what a cluster leaves at its defaults is not in its patches.
func TestBase(t *testing.T) {
	s := atlas(talos112)
	s.Cluster.CNI = spec.CNI{}
	s.Image = spec.Image{}
	p := planOf(t, s)

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

// TestInstallDisk: Linux gives letters in the order of the positions on a bus, whichever disk is the system's.
func TestInstallDisk(t *testing.T) {
	for want, positions := range map[string][]string{
		"/dev/sda": {"scsi0", "scsi1", "virtio0"},
		"/dev/sdb": {"scsi1", "scsi0", "scsi2"},
		"/dev/sdc": {"scsi10", "scsi9", "scsi2", "virtio0"},
		"/dev/vda": {"virtio0", "scsi0"},
		"/dev/vdb": {"virtio3", "virtio1", "virtio15", "scsi0"},
	} {
		var node plan.Node
		for _, at := range positions {
			node.Disks = append(node.Disks, plan.Disk{Interface: at})
		}

		if got := installDisk(node); got != want {
			t.Errorf("%v: got %s, want %s", positions, got, want)
		}
	}
}
