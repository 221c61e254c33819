// Package impact says what a change does to each node of a running cluster, why, and in which order. It is pure.
package impact

import (
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/spec"
	"talos-proxmox/components/upgradepath"
)

// Effect is what a change does to a node.
type Effect string

// The effects, from the harmless to what ends a node. Unknown is said of a node that does not answer, Create of one
// that is not there yet.
const (
	EffectNone    Effect = "none"
	EffectCreate  Effect = "create"
	EffectLive    Effect = "live"
	EffectReboot  Effect = "reboot"
	EffectUpgrade Effect = "upgrade"
	EffectReplace Effect = "replace"
	EffectRemove  Effect = "remove"
	EffectUnknown Effect = "unknown"
)

// Down says whether the node is unavailable for a while.
func (e Effect) Down() bool { return e == EffectReboot || e == EffectUpgrade || e == EffectReplace }

// Vanilla is the schematic of an image without extensions and kernel arguments.
const Vanilla = spec.VanillaSchematic

// System is what a node runs, or is to run. What is not known, or not wanted in particular, is empty.
type System struct {
	// Talos and Kubernetes (the kubelet's) are versions with a leading v.
	Talos, Kubernetes string
	// Schematic of the Image Factory, its id.
	Schematic string
	// Platform of Talos, "metal" or "nocloud".
	Platform string
	// SecureBoot says whether the system was booted with SecureBoot, or is made for it. nil: it is not known.
	SecureBoot *bool
}

// String is short enough for a table.
func (s System) String() string {
	var parts []string
	if s.Talos != "" {
		parts = append(parts, "Talos "+s.Talos)
	}

	if s.Schematic != "" {
		parts = append(parts, "schematic "+short(s.Schematic))
	}

	if s.SecureBoot != nil && *s.SecureBoot {
		parts = append(parts, "SecureBoot")
	}

	if s.Kubernetes != "" {
		parts = append(parts, "Kubernetes "+s.Kubernetes)
	}

	return strings.Join(parts, ", ")
}

func short(schematic string) string { return schematic[:min(len(schematic), 8)] }

// Change is all that is known of a node whose configuration is about to change.
type Change struct {
	// Unreachable is why the node tells nothing; nil when it does.
	Unreachable error
	// Rejected is what the node says of a configuration that it refuses; nil when it takes it.
	Rejected    error
	Now, Wanted System
	// Reboot says that Talos takes the configuration with a reboot only.
	Reboot bool
	// Settings are what differs from the configuration that the node runs with.
	Settings []Setting
	Apply    spec.Apply
}

// Upgrades says whether the node is to run another system than it does: another version of Talos, or other extensions.
func (c Change) Upgrades() bool {
	return c.Now.Talos != c.Wanted.Talos || c.Wanted.Schematic != "" && c.Now.Schematic != c.Wanted.Schematic
}

// Evaluate says what the change does to the node, and why. The error is why it must not be begun; it says what to do
// instead.
func (c Change) Evaluate() (Effect, string, error) {
	switch {
	case c.Unreachable != nil:
		return EffectUnknown, "it does not answer: " + c.Unreachable.Error(), nil
	case c.Rejected != nil:
		return EffectNone, "nothing is applied",
			fmt.Errorf("%w; correct the patches, or the configuration key in question", c.Rejected)
	case c.Upgrades():
		return EffectUpgrade, c.upgradeWhy(), c.checkUpgrade()
	}

	why := c.liveWhy()
	if c.changesSecureBoot() {
		why += fmt.Sprintf("; the node stays %s SecureBoot until it is replaced", with(*c.Now.SecureBoot))
	}

	switch {
	case c.Reboot && c.Apply == spec.ApplyNoReboot:
		return EffectReboot, why, fmt.Errorf(
			"lifecycle.apply: noReboot forbids changes that need a reboot, and this one does (%s); revert it, or "+
				"set auto or staged", why)
	case c.Reboot && c.Apply == spec.ApplyStaged:
		return EffectLive, "kept for the next reboot: " + why, c.checkKubernetesPath()
	case c.Reboot:
		return EffectReboot, why, c.checkKubernetesPath()
	case len(c.Settings) > 0:
		return EffectLive, why, c.checkKubernetesPath()
	default:
		return EffectNone, "it already has this configuration", nil
	}
}

func (c Change) checkKubernetesPath() error {
	return upgradepath.Check(
		upgradepath.Versions{Talos: c.Now.Talos, Kubernetes: c.Now.Kubernetes},
		upgradepath.Versions{Talos: c.Now.Talos, Kubernetes: c.Wanted.Kubernetes},
	)
}

// checkUpgrade checks that an upgrade in place can do what is wanted.
func (c Change) checkUpgrade() error {
	errs := []error{upgradepath.Check(
		upgradepath.Versions{Talos: c.Now.Talos, Kubernetes: c.Now.Kubernetes},
		upgradepath.Versions{Talos: c.Wanted.Talos, Kubernetes: c.Wanted.Kubernetes},
	)}

	if c.Apply != spec.ApplyAuto {
		errs = append(errs, fmt.Errorf("lifecycle.apply: an upgrade reboots the node, which %s does not allow; set auto",
			c.Apply))
	}

	if c.Wanted.Platform != "" && c.Now.Platform != "" && c.Wanted.Platform != c.Now.Platform {
		errs = append(errs,
			fmt.Errorf("image.platform: the node was created for %s, which stores the address in a different place "+
				"than %s; keep the platform, or replace the node", c.Now.Platform, c.Wanted.Platform))
	}

	if c.Wanted.Schematic == "" && c.Now.Schematic != "" && c.Now.Schematic != Vanilla {
		errs = append(errs,
			fmt.Errorf(
				"image.schematic: the node runs schematic %s, whose extensions an upgrade from the plain installer would drop; "+
					"set the schematic, or %s to drop them", c.Now.Schematic, Vanilla))
	}

	if c.changesSecureBoot() {
		errs = append(errs, c.secureBootError())
	}

	return errors.Join(errs...)
}

// changesSecureBoot says whether the node was booted with SecureBoot and is to have a system that is not made for it,
// or the other way round.
func (c Change) changesSecureBoot() bool {
	return c.Now.SecureBoot != nil && c.Wanted.SecureBoot != nil && *c.Now.SecureBoot != *c.Wanted.SecureBoot
}

// secureBootError is why no upgrade changes SecureBoot: a firmware that has enrolled keys starts nothing that is not
// signed, and one that has none does not begin to look at signatures.
func (c Change) secureBootError() error {
	if *c.Now.SecureBoot {
		return errors.New("image.secureBoot: the node was booted with SecureBoot, and its firmware would not start the " +
			"unsigned system of this upgrade; set it to true")
	}

	return errors.New("image.secureBoot: the node was booted without SecureBoot, which an upgrade does not change; " +
		"leave it out, or replace the node before the upgrade")
}

func with(secureBoot bool) string {
	if secureBoot {
		return "with"
	}

	return "without"
}

func (c Change) upgradeWhy() string {
	var why []string

	if c.Now.Talos != c.Wanted.Talos {
		why = append(why, "Talos "+c.Now.Talos+" becomes "+c.Wanted.Talos)
	}

	if c.Wanted.Schematic != "" && c.Now.Schematic != c.Wanted.Schematic {
		why = append(why, "schematic "+orNone(short(c.Now.Schematic))+" becomes "+short(c.Wanted.Schematic))
	}

	if c.Now.Kubernetes != "" && c.Wanted.Kubernetes != "" && c.Now.Kubernetes != c.Wanted.Kubernetes {
		why = append(why, "Kubernetes "+c.Now.Kubernetes+" becomes "+c.Wanted.Kubernetes)
	}

	return strings.Join(why, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}

	return s
}

// maxNamedSettings is how many settings are named before they are counted.
const maxNamedSettings = 3

func (c Change) liveWhy() string {
	var why []string

	for i, s := range c.Settings {
		if i == maxNamedSettings && len(c.Settings) > maxNamedSettings+1 {
			why = append(why, fmt.Sprintf("%d more", len(c.Settings)-maxNamedSettings))

			break
		}

		why = append(why, s.Path)
	}

	if len(why) == 0 {
		return "its configuration"
	}

	return strings.Join(why, ", ")
}
