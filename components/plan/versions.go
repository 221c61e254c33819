package plan

import (
	"maps"
	"regexp"
	"slices"

	"github.com/blang/semver/v4"
)

// minor is the second number of a version, 0 of what is no version.
func minor(version string) uint64 {
	v, _ := semver.ParseTolerant(version) // the zero version with an error

	return v.Minor
}

// NewestContract is the newest version contract that nodes are configured with, a minor version of Talos: the Talos
// provider of the SDK holds Talos' library of 1.12, and takes no documents that came later. Later versions of Talos
// take the settings of 1.12.
const NewestContract = 12

// The minor versions that are supported, of version 1; stacks/docs/support-matrix.md lists them. The newest Talos is
// the newest that its library knows.
const (
	oldestTalos, newestTalos = 8, 14
	oldestK3s                = 28
)

// version admits what Talos, Kubernetes and Cilium release, with or without the leading v.
var version = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-(?:alpha|beta|rc)\.\d+)?)$`)

// patches are the first patch releases that have something, by the minor version.
type patches map[uint64]uint64

// before says whether a version is older than the patch release of its minor version, or than all of them.
func (p patches) before(version string) bool {
	v, err := semver.ParseTolerant(version)
	least, listed := p[v.Minor]

	return err == nil && (listed && v.Patch < least || v.Minor < slices.Min(slices.Collect(maps.Keys(p))))
}

// What older releases of K3s cannot do: they refuse to start, or pass over an option (k3s-io/k3s issues 12245, 8975).
var (
	anonymousPatches = patches{31: 9, 32: 5, 33: 1}
	fallbackPatches  = patches{28: 6, 29: 1}
)
