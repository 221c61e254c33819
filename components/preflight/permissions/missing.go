package permissions

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/spec"
)

// Missing are the privileges that credentials lack, by the name of a node that is there.
type Missing map[string][]missing

// Check checks that nothing is missing that a change of these properties of the VM of a node needs. The error
// (spec.Problems) names each privilege as this version of Proxmox VE calls it; 0 is an unknown one.
func (m Missing) Check(n plan.Node, changes []string, major int) error {
	var problems spec.Problems

	ofVM := slices.ContainsFunc(changes, func(c string) bool { return c != HighAvailability })

	for _, need := range m[n.Name] {
		if slices.ContainsFunc(need.Changes, func(c string) bool {
			return c == anyChange && ofVM || slices.Contains(changes, c)
		}) {
			problem := need.problem(major)
			problem.Rule += fmt.Sprintf(", which the change of %s needs (%s)", n.Name, strings.Join(changes, ", "))
			problems = append(problems, problem)
		}
	}

	return problems.Err()
}

// missing is a privilege that the credentials lack.
type missing struct {
	Privilege

	// paths where they lack it.
	paths []string
}

// problem names a privilege that is missing, as this version of Proxmox VE calls it.
func (m missing) problem(major int) spec.Problem {
	names := m.On(major)

	return spec.Problem{
		Path: "proxmox", Rule: fmt.Sprintf("the credentials lack %s on %s, %s", strings.Join(names, " or "),
			checks.UpTo(m.paths, 3), m.For),
		Remedy: fmt.Sprintf("run 'pveum role modify TalosProxmox -append -privs %s', with the name of the role, "+
			"and make sure that the credentials have the role on that path", names[0]),
	}
}
