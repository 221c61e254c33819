package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// versions checks the pair against the compatibility table that Talos itself uses.
func (r *Resolver) versions() (talos, kubernetes string) {
	v := r.Spec.Cluster.Versions
	talos, ok := r.version("cluster.versions.talos", v.Talos, "v1.12.4")

	configured := r.Spec.Cluster.Bootstrap != spec.BootstrapExternal
	ok = ok && r.checkTalos(talos, configured)

	if !configured {
		return talos, ""
	}

	kubernetes, okKubernetes := r.version("cluster.versions.kubernetes", v.Kubernetes, "v1.34.2")
	okKubernetes = okKubernetes && r.checkMajor("cluster.versions.kubernetes", v.Kubernetes, "v1.34.2")

	if !ok || !okKubernetes {
		return talos, kubernetes
	}

	t, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
	if err != nil {
		r.Problems.Add("cluster.versions.talos", "is not a version that Talos knows: "+err.Error(), talos, "correct it")

		return talos, kubernetes
	}

	k, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(kubernetes, "v"))
	if err != nil {
		r.Problems.Add("cluster.versions.kubernetes", "is not a Kubernetes version: "+err.Error(), kubernetes, "correct it")

		return talos, kubernetes
	}

	if err := k.SupportedWith(t); err != nil {
		r.Problems.Add("cluster.versions.kubernetes", "is not compatible with Talos "+talos+": "+err.Error(),
			kubernetes,
			"change one of the two versions")
	}

	return talos, kubernetes
}

// contract checks that the running version knows the defaults that it is to be configured with.
func (r *Resolver) contract(talos string) string {
	const path = "cluster.versions.contract"

	given := r.Spec.Cluster.Versions.Contract
	if given == "" {
		return ""
	}

	contract, ok := r.version(path, given, "v1.12.4")
	ok = ok && r.checkMajor(path, given, "v1.12.4")

	if ok && plan.Minor(contract) > plan.Minor(talos) {
		r.Problems.Add(path, "must not be later than cluster.versions.talos, "+talos, given, "upgrade first")
	} else if ok && plan.Minor(contract) > plan.NewestContract {
		r.Problems.Add(path, fmt.Sprintf("must be 1.%d or earlier: the Talos provider supports no later version",
			plan.NewestContract),
			given, "lower it, or leave it out")
	}

	return contract
}

// checkTalos holds Talos to the supported range. Nodes that others configure may run any.
func (r *Resolver) checkTalos(version string, configured bool) bool {
	const path = "cluster.versions.talos"

	switch m := plan.Minor(version); {
	case configured && !r.checkMajor(path, version, "v1.12.4"):
	case m < plan.OldestTalos && configured:
		r.Problems.Add(path, fmt.Sprintf("must be 1.%d or later: older ones are not supported", plan.OldestTalos), version,
			"raise it")
	case m > plan.NewestTalos && configured:
		r.Problems.Add(path, fmt.Sprintf("must be 1.%d or earlier: this release supports no later version",
			plan.NewestTalos),
			version,
			"lower it, or use a later release of this program")
	default:
		return true
	}

	return false
}

// checkMajor holds a version to the major version that there is.
func (r *Resolver) checkMajor(path, given, example string) bool {
	known := plan.Major(given) == plan.OnlyMajor
	if !known {
		r.Problems.Add(path, fmt.Sprintf("must be of major version %d: no other is supported", plan.OnlyMajor), given,
			"write it like "+example)
	}

	return known
}

func (r *Resolver) version(path, given, example string) (string, bool) {
	m := checks.Version.FindStringSubmatch(given)

	switch {
	case given == "":
		r.Problems.Add(path, "is required", "", "set it, for example to "+example)
	case m == nil:
		r.Problems.Add(path, "must be a full version", given, "write it like "+example)
	default:
		return "v" + m[1], true
	}

	return given, false
}

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
