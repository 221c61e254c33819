package planner

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/spec"
)

// TestNamesOfISOFiles: what the name of an ISO file says must be what the configuration says.
func TestNamesOfISOFiles(t *testing.T) {
	t.Parallel()

	id, other := strings.Repeat("a", 64), strings.Repeat("b", 64)
	file := func(schematic, name string) spec.ISOImage {
		return spec.ISOImage{URL: "https://factory.talos.dev/image/" + schematic + "/v1.12.4/" + name}
	}

	const (
		nocloud = `: is for another platform than image.platform "nocloud"`
		either  = "; change one of the two"
	)

	for name, test := range map[string]struct {
		iso                spec.ISOImage
		change             func(*draft)
		problems, warnings []string
	}{
		"no schematic": {
			iso: file(id, "metal-amd64.iso"),
			warnings: []string{"image.schematic: is not set, and the ISO file is that of a schematic: nodes are installed " +
				"without its extensions and kernel arguments (given: " + file(id, "metal-amd64.iso").URL +
				"); set it to " + id + ", unless none are needed"},
		},
		"no schematic, installed by others": {
			iso: file(id, "metal-amd64.iso"),
			change: func(s *draft) {
				s.Cluster.Bootstrap, s.Cluster.Versions.Kubernetes = spec.BootstrapExternal, ""
			},
		},
		"a schematic of nothing": {iso: file(spec.VanillaSchematic, "metal-amd64.iso")},
		"the schematic":          {iso: file(id, "metal-amd64.iso"), change: schematic(spec.Schematic{ID: id})},
		"its extensions": {
			iso: file(id, "metal-amd64.iso"), change: schematic(spec.Schematic{Extensions: []string{"qemu-guest-agent"}}),
		},
		"left out": {
			iso: file(id, "metal-amd64.iso"), change: schematic(spec.Schematic{ID: spec.VanillaSchematic}),
		},
		"another schematic": {
			iso: file(id, "metal-amd64.iso"), change: schematic(spec.Schematic{ID: other}),
			warnings: []string{"image.iso.url: is the file of another schematic than image.schematic, which new nodes are " +
				"installed from (given: " + file(id, "metal-amd64.iso").URL + ")" + either + ", unless this is intended"},
		},
		"metal, and addresses on the cloud-init drive": {
			iso: spec.ISOImage{Volume: "local:iso/metal-amd64.iso"},
			change: func(s *draft) {
				s.Image.Platform, s.Network.Addressing = spec.PlatformNoCloud, spec.AddressingStatic
				s.Network.Gateway = "10.0.0.1"
			},
			problems: []string{"image.iso.volume" + nocloud + ": Talos on metal ignores the cloud-init drive, where nodes " +
				"find their addresses (given: local:iso/metal-amd64.iso)" + either},
		},
		"metal, and addresses from DHCP": {
			iso: spec.ISOImage{Volume: "local:iso/metal-amd64.iso"},
			change: func(s *draft) {
				s.Image.Platform, s.Network.Addressing = spec.PlatformNoCloud, spec.AddressingReserved
			},
			warnings: []string{"image.iso.volume" + nocloud + " (given: local:iso/metal-amd64.iso)" + either},
		},
		"another architecture": {
			iso: spec.ISOImage{Volume: "local:iso/talos-v1.12.4-metal-arm64.iso"},
			problems: []string{"image.iso.volume: is for another architecture than the VMs, which are amd64 (given: " +
				"local:iso/talos-v1.12.4-metal-arm64.iso); use the file for amd64"},
		},
		"for SecureBoot": {
			iso: spec.ISOImage{Volume: "local:iso/metal-amd64-secureboot.iso"},
			problems: []string{"image.iso.volume: is for SecureBoot, and image.secureBoot is false: nodes would be installed " +
				"without it (given: local:iso/metal-amd64-secureboot.iso)" + either},
		},
		"for SecureBoot, as the pool": {
			iso: spec.ISOImage{Volume: "local:iso/metal-amd64-secureboot.iso"},
			change: func(s *draft) {
				control := s.Pools["control"]
				control.Image.SecureBoot = new(true)
				*s = s.with("control", control)
			},
		},
		"not for SecureBoot": {
			iso:    spec.ISOImage{URL: "https://mirror.lan/metal-amd64.iso"},
			change: func(s *draft) { s.Image.SecureBoot = true },
			problems: []string{"image.iso.url: is not for SecureBoot, and image.secureBoot is true (given: " +
				"https://mirror.lan/metal-amd64.iso); use the file metal-amd64-secureboot.iso, or change image.secureBoot"},
		},
		"perhaps for SecureBoot": {
			iso:    spec.ISOImage{URL: "https://mirror.lan/secureboot/metal-amd64.iso"},
			change: func(s *draft) { s.Image.SecureBoot = true },
		},
		"names of others": {iso: spec.ISOImage{Volume: "local:iso/nonmetal-arm64.iso"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := small().scheduling()
			s.Image = spec.Image{Source: spec.SourceISO, ISO: test.iso}

			if test.change != nil {
				test.change(&s)
			}

			if s.Cluster.Bootstrap == spec.BootstrapExternal {
				s.Cluster.SchedulableControlPlanes = nil
			}

			assert.Equal(t, test.problems, said(t, s))

			if test.problems != nil {
				return
			}

			assert.Equal(t, test.warnings, warningsOf(placed(t, s)))
		})
	}
}

// schematic states what an image holds.
func schematic(stated spec.Schematic) func(*draft) {
	return func(s *draft) { s.Image.Schematic = &stated }
}
