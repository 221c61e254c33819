package impact

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"talos-proxmox/components/spec"
)

func TestEvaluate(t *testing.T) {
	a, b := strings.Repeat("a", 64), strings.Repeat("b", 64)
	now := System{Talos: "v1.11.6", Kubernetes: "v1.33.6", Schematic: a, Platform: "metal"}
	setting := []Setting{{Path: "machine.sysctls.x", Before: "1", After: "2"}}
	many := []Setting{{Path: "a"}, {Path: "b"}, {Path: "c"}, {Path: "d"}, {Path: "e"}}

	to := func(change func(*System)) System {
		s := now
		change(&s)

		return s
	}

	signed := func(s *System) { s.SecureBoot = new(true) }

	for name, c := range map[string]struct {
		change       Change
		effect       Effect
		why, refused string
	}{
		"nothing": {Change{Now: now, Wanted: now}, EffectNone, "it already has this configuration", ""},
		"no answer": {
			Change{Unreachable: errors.New("connection refused"), Wanted: now},
			EffectUnknown,
			"it does not answer: connection refused", "",
		},
		"a refusal": {
			Change{Rejected: errors.New("it refuses its configuration: no image"), Now: now, Wanted: now, Settings: setting},
			EffectNone, "nothing is applied",
			"it refuses its configuration: no image; correct the patches, or the configuration key in question",
		},
		"a setting":     {Change{Now: now, Wanted: now, Settings: setting}, EffectLive, "machine.sysctls.x", ""},
		"settings":      {Change{Now: now, Wanted: now, Settings: many[:4]}, EffectLive, "a, b, c, d", ""},
		"many settings": {Change{Now: now, Wanted: now, Settings: many}, EffectLive, "a, b, c, 2 more", ""},
		"a reboot": {
			Change{Now: now, Wanted: now, Settings: setting, Reboot: true, Apply: spec.ApplyAuto},
			EffectReboot, "machine.sysctls.x", "",
		},
		"a reboot, put off": {
			Change{Now: now, Wanted: now, Settings: setting, Reboot: true, Apply: spec.ApplyStaged},
			EffectLive, "kept for the next reboot: machine.sysctls.x", "",
		},
		"no schematic wanted": {
			Change{Now: now, Wanted: to(func(s *System) { s.Schematic = "" })},
			EffectNone,
			"it already has this configuration", "",
		},
		"another schematic": {
			Change{Now: now, Wanted: to(func(s *System) { s.Schematic = b }), Apply: spec.ApplyAuto},
			EffectUpgrade, "schematic aaaaaaaa becomes bbbbbbbb", "",
		},
		"the first schematic": {
			Change{Now: to(func(s *System) { s.Schematic = "" }), Wanted: now, Apply: spec.ApplyAuto},
			EffectUpgrade, "schematic none becomes aaaaaaaa", "",
		},
		"another version": {
			Change{Now: now, Wanted: to(func(s *System) { s.Talos = "v1.12.4" }), Apply: spec.ApplyAuto},
			EffectUpgrade, "Talos v1.11.6 becomes v1.12.4", "",
		},
		"back to no extension": {Change{
			Now: now, Wanted: to(func(s *System) { s.Schematic = Vanilla }),
			Apply: spec.ApplyAuto,
		}, EffectUpgrade, "schematic aaaaaaaa becomes 37656798", ""},
		"version and schematic": {
			Change{Now: now, Wanted: to(func(s *System) { s.Talos, s.Schematic = "v1.12.4", b }), Apply: spec.ApplyAuto},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4, schematic aaaaaaaa becomes bbbbbbbb", "",
		},
		"another Kubernetes": {
			Change{
				Now: now, Wanted: to(func(s *System) { s.Kubernetes = "v1.34.2" }),
				Settings: []Setting{{Path: "machine.kubelet.image"}},
			},
			EffectLive,
			"machine.kubelet.image", "",
		},
		"a Kubernetes too far": {
			Change{Now: now, Wanted: to(func(s *System) { s.Kubernetes = "v1.35.0" }), Settings: setting},
			EffectLive,
			"machine.sysctls.x",
			"cluster.versions.kubernetes: Kubernetes v1.33.6 cannot become v1.35.0 at once: upgrades go one minor " +
				"version at a time; go through " +
				"the last v1.34, each in an update of its own, and then to v1.35.0",
		},
		"a reboot that is forbidden": {
			Change{Now: now, Wanted: now, Settings: setting, Reboot: true, Apply: spec.ApplyNoReboot},
			EffectReboot,
			"machine.sysctls.x",
			"lifecycle.apply: noReboot forbids changes that need a reboot, and this one does (machine.sysctls.x); " +
				"revert it, or set auto or staged",
		},
		"an upgrade that is forbidden": {
			Change{Now: now, Wanted: to(func(s *System) { s.Talos = "v1.12.4" }), Apply: spec.ApplyStaged},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4",
			"lifecycle.apply: an upgrade reboots the node, which staged does not allow; set auto",
		},
		"another platform": {
			Change{Now: now, Wanted: to(func(s *System) { s.Schematic, s.Platform = b, "nocloud" }), Apply: spec.ApplyAuto},
			EffectUpgrade,
			"schematic aaaaaaaa becomes bbbbbbbb",
			"image.platform: the node was created for metal, which stores the address in a different place than " +
				"nocloud; keep the platform, or replace the node",
		},
		"extensions that would be lost": {
			Change{Now: now, Wanted: System{Talos: "v1.12.4", Kubernetes: "v1.33.6"}, Apply: spec.ApplyAuto},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4",
			"image.schematic: the node runs schematic " + a +
				", whose extensions an upgrade from the plain installer would drop; set the schematic, or " +
				Vanilla + " to drop them",
		},
		"SecureBoot, which stays": {
			Change{Now: to(signed), Wanted: to(func(s *System) { signed(s); s.Talos = "v1.12.4" }), Apply: spec.ApplyAuto},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4", "",
		},
		"SecureBoot, for a system that is not signed": {
			Change{
				Now: to(signed), Wanted: to(func(s *System) { s.Talos, s.SecureBoot = "v1.12.4", new(false) }),
				Apply: spec.ApplyAuto,
			},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4",
			"image.secureBoot: the node was booted with SecureBoot, and its firmware would not start the unsigned system of " +
				"this upgrade; set it to true",
		},
		"a signed system for a node without SecureBoot": {
			Change{
				Now:    to(func(s *System) { s.SecureBoot = new(false) }),
				Wanted: to(func(s *System) { signed(s); s.Talos = "v1.12.4" }), Apply: spec.ApplyAuto,
			},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4",
			"image.secureBoot: the node was booted without SecureBoot, which an upgrade does not change; leave it out, or " +
				"replace the node before the upgrade",
		},
		"another installer only": {
			Change{Now: to(func(s *System) { s.SecureBoot = new(false) }), Wanted: to(signed), Settings: setting},
			EffectLive,
			"machine.sysctls.x; the node stays without SecureBoot until it is replaced", "",
		},
		"an installer for an unsigned system only": {
			Change{Now: to(signed), Wanted: to(func(s *System) { s.SecureBoot = new(false) }), Settings: setting},
			EffectLive,
			"machine.sysctls.x; the node stays with SecureBoot until it is replaced", "",
		},
		"a node that does not say whether it was booted with SecureBoot": {
			Change{Now: now, Wanted: to(func(s *System) { signed(s); s.Talos = "v1.12.4" }), Apply: spec.ApplyAuto},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4", "",
		},
		"nothing to be lost": {
			Change{
				Now: to(func(s *System) { s.Schematic = Vanilla }), Wanted: System{Talos: "v1.12.4", Kubernetes: "v1.33.6"},
				Apply: spec.ApplyAuto,
			},
			EffectUpgrade,
			"Talos v1.11.6 becomes v1.12.4", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			effect, why, err := c.change.Evaluate()
			assert.Equal(t, c.effect, effect)
			assert.Equal(t, c.why, why)

			if c.refused == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.refused)
			}
		})
	}
}

// TestEvaluateProperties: a node that does not answer is never said to be spared, one that runs what is wanted never
// goes away.
func TestEvaluateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.SampledFrom([]string{"v1.10.9", "v1.11.6", "v1.12.4"})
		schematic := rapid.SampledFrom([]string{"", Vanilla, strings.Repeat("a", 64)})
		system := func(name string) System {
			return System{Talos: version.Draw(t, name), Schematic: schematic.Draw(t, name), Kubernetes: "v1.33.6"}
		}

		c := Change{
			Now: system("now"), Wanted: system("wanted"), Reboot: rapid.Bool().Draw(t, "reboot"),
			Apply: rapid.SampledFrom([]spec.Apply{spec.ApplyAuto, spec.ApplyStaged, spec.ApplyNoReboot}).Draw(t, "apply"),
		}

		effect, _, err := c.Evaluate()
		assert.Equal(t, c.Upgrades(), effect == EffectUpgrade)

		if c.Now == c.Wanted && !c.Reboot {
			assert.Equal(t, EffectNone, effect)
			assert.NoError(t, err)
		}

		if effect.Down() && c.Apply != spec.ApplyAuto {
			assert.Error(t, err, "nothing goes away that is not allowed to")
		}

		c.Unreachable = errors.New("silence")
		effect, _, err = c.Evaluate()
		assert.Equal(t, EffectUnknown, effect)
		assert.NoError(t, err)
	})
}
