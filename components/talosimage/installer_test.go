package talosimage

import (
	"testing"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestInstaller: the installer carries what the image of the first boot carries.
func TestInstaller(t *testing.T) {
	const (
		// what the factory calls an empty schematic
		plain = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
		agent = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515" // and one with the guest agent only
	)

	template := func(schematic *spec.Schematic) spec.Spec {
		s := plantest.Atlas(plantest.Talos112)
		s.Image = spec.Image{
			Source: spec.SourceTemplate, Template: spec.TemplateImage{Control: "9000", Worker: "9000"},
			Schematic: schematic,
		}
		s.Network.Nameservers = nil

		return s
	}

	factory := func(f spec.FactoryImage) spec.Spec {
		s := plantest.Atlas(plantest.Talos112)
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
				s.Cluster.Versions = plantest.Talos114

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
			p := plantest.New(t, test.spec)

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
