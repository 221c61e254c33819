package plan

import "fmt"

// The minor versions that are supported, of version 1; stacks/docs/support-matrix.md lists them. The newest Talos is
// the newest that its library knows.
const (
	oldestTalos, newestTalos = 8, 14
	oldestK3s                = 28
)

// newestContract is the newest version contract that nodes are configured with, a minor version of Talos: the Talos
// provider of the SDK holds Talos' library of 1.12, and takes no documents that came later. Later versions of Talos
// take the settings of 1.12.
const newestContract = 12

// The major versions of Proxmox VE that are supported.
const (
	// OldestProxmox is the first.
	OldestProxmox = 8
	// NewestProxmox is the last.
	NewestProxmox = 9
)

// checkTalos holds Talos to the supported range. Nodes that others configure may run any.
func (r *resolver) checkTalos(version string, configured bool) bool {
	const path = "cluster.versions.talos"

	switch m := minor(version); {
	case m < oldestTalos && configured:
		r.problems.Add(path, fmt.Sprintf("must be 1.%d or later: older ones are not supported", oldestTalos), version,
			"raise it")
	case m > newestTalos && configured:
		r.problems.Add(path, fmt.Sprintf("must be 1.%d or earlier: this release knows no later one", newestTalos), version,
			"lower it, or use a later release of this program")
	default:
		return true
	}

	return false
}
