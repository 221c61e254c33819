package plan

import "fmt"

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

func (r *resolver) version(path, given, example string) (string, bool) {
	m := version.FindStringSubmatch(given)

	switch {
	case given == "":
		r.problems.Add(path, "is required", "", "state it, for example "+example)
	case m == nil:
		r.problems.Add(path, "must be a full version", given, "write it like "+example)
	default:
		return "v" + m[1], true
	}

	return given, false
}
