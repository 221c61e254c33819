// Package upgradepath says which versions of Talos, Kubernetes and K3s may follow each other in one update. It is pure.
package upgradepath

import (
	"errors"
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// The keys that path problems name.
const (
	talosKey      = "cluster.versions.talos"
	kubernetesKey = "cluster.versions.kubernetes"
	k3sKey        = "cluster.versions.k3s"
)

// Versions of what a node runs, or is to run, with a leading v. Kubernetes is empty where it is not known.
type Versions struct{ Talos, Kubernetes string }

// Check checks whether one run may lead from the versions that run to those that are wanted. Talos says which of its
// versions may follow each other and which of Kubernetes it goes with; Kubernetes moves by one minor version at a time.
// On the way, each version of the one runs together with each of the other.
func Check(from, to Versions) error {
	errs := []error{talosPath(from.Talos, to.Talos)}

	if from.Kubernetes != "" && to.Kubernetes != "" {
		errs = append(errs, kubernetesPath(kubernetesKey, "Kubernetes", from.Kubernetes, to.Kubernetes))
	}

	if errors.Join(errs...) == nil {
		errs = append(errs, checkPairs(from, to))
	}

	return errors.Join(errs...)
}

// talosPath asks the table that Talos' installer asks.
func talosPath(from, to string) error {
	refused := upgradeable(from, to)
	if refused == nil {
		return nil
	}

	hops, err := talosHops(from, to)
	if err != nil {
		return err
	}

	return fmt.Errorf("%s: Talos %s cannot become %s at once: %w; %s", talosKey, from, to, refused, viaHops(hops))
}

func upgradeable(from, to string) error {
	if from == to {
		return nil
	}

	host, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: from})
	if err != nil {
		return fmt.Errorf("version %q: %w", from, err)
	}

	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: to})
	if err != nil {
		return fmt.Errorf("version %q: %w", to, err)
	}

	return target.UpgradeableFrom(host)
}

// talosHops goes through every minor version in between: that is the way that Talos' makers test.
func talosHops(from, to string) ([]string, error) { return hops(from, to, "the last v%d.%d") }

// CheckK3s checks whether one run may lead from one version of K3s to another: K3s goes with its version of Kubernetes.
func CheckK3s(from, to string) error { return kubernetesPath(k3sKey, "K3s", from, to) }

// MinorDiffers says whether two versions differ by more than a patch.
func MinorDiffers(from, to string) bool {
	f, t, err := parse(from, to)

	return err != nil || f.Major != t.Major || f.Minor != t.Minor
}

// Older says whether a version comes before another. Of versions that cannot be read, none does.
func Older(version, than string) bool {
	v, t, err := parse(version, than)

	return err == nil && v.LT(t)
}

func kubernetesPath(key, what, from, to string) error {
	f, t, err := parse(from, to)
	if err != nil {
		return err
	}

	if f.Major == t.Major && (t.Minor == f.Minor || t.Minor == f.Minor+1) {
		return nil
	}

	if t.LT(f) {
		return fmt.Errorf("%s: %s %s cannot become %s: a downgrade to an earlier minor version is not supported; "+
			"set v%d.%d or the next", key, what, from, to, f.Major, f.Minor)
	}

	way, err := hops(from, to, "the last v%d.%d")
	if err != nil {
		return err
	}

	return fmt.Errorf("%s: %s %s cannot become %s at once: upgrades go one minor version at a time; "+
		"%s", key, what, from,
		to, viaHops(way))
}

// checkPairs checks that every version of Kubernetes that may run meanwhile goes with every version of Talos that may.
func checkPairs(from, to Versions) error {
	var errs []error

	if from.Kubernetes != "" {
		if err := goesWith(from.Kubernetes, to.Talos); err != nil {
			errs = append(errs,
				fmt.Errorf("%s: Kubernetes %s is running, which is not compatible with Talos %s: %w; change %s "+
					"first, in an update of its own",
					talosKey, from.Kubernetes, to.Talos, err, kubernetesKey))
		}
	}

	if to.Kubernetes != "" && from.Kubernetes != to.Kubernetes {
		if err := goesWith(to.Kubernetes, from.Talos); err != nil {
			errs = append(errs,
				fmt.Errorf("%s: Talos %s is running, which is not compatible with Kubernetes %s: %w; change %s "+
					"first, in an update of its own",
					kubernetesKey, from.Talos, to.Kubernetes, err, talosKey))
		}
	}

	return errors.Join(errs...)
}

func goesWith(kubernetes, talos string) error {
	k, err := compatibility.ParseKubernetesVersion(kubernetes)
	if err != nil {
		return fmt.Errorf("version %q: %w", kubernetes, err)
	}

	t, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
	if err != nil {
		return fmt.Errorf("version %q: %w", talos, err)
	}

	return k.SupportedWith(t)
}

// hops are the minor versions between two versions, in words, and the last of the two.
func hops(from, to, form string) ([]string, error) {
	f, t, err := parse(from, to)
	if err != nil {
		return nil, err
	}

	if f.Major != t.Major {
		return nil, fmt.Errorf("there is no known upgrade path from %s to %s", from, to)
	}

	var way []string

	for minor := f.Minor; minor != t.Minor; {
		if minor < t.Minor {
			minor++
		} else {
			minor--
		}

		if minor != t.Minor {
			way = append(way, fmt.Sprintf(form, t.Major, minor))
		}
	}

	return append(way, to), nil
}

func parse(from, to string) (f, t semver.Version, err error) {
	if f, err = semver.ParseTolerant(from); err != nil {
		return f, t, fmt.Errorf("version %q: %w", from, err)
	}

	if t, err = semver.ParseTolerant(to); err != nil {
		return f, t, fmt.Errorf("version %q: %w", to, err)
	}

	return f, t, nil
}

func viaHops(way []string) string {
	if len(way) == 1 {
		return "set another version"
	}

	return "go through " + strings.Join(way[:len(way)-1], ", then ") + ", each in an update of its own, and then " +
		"to " + way[len(way)-1]
}
