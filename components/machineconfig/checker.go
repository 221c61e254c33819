package machineconfig

import (
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// checker collects what is said of the nodes. What several nodes of a pool have in common is said of the first.
type checker struct {
	// known is the plan as far as rules may go by it.
	known *plan.Plan
	// standIn says that the plan was made up, for there is none of the operator's.
	standIn            bool
	unknownCNI         bool
	problems, warnings spec.Problems
	reported           map[string]bool
}

func (c *checker) note(to *spec.Problems, problem spec.Problem) {
	if key := problem.Path + "\x00" + problem.Rule; !c.reported[key] {
		if c.reported == nil {
			c.reported = map[string]bool{}
		}

		c.reported[key] = true
		*to = append(*to, problem)
	}
}

// applyPatches applies patches one by one, without those that cannot be applied, which it notes.
func (c *checker) applyPatches(cfg talosconfig.Provider, patches []spec.Patch, node plan.Node) talosconfig.Provider {
	for _, patch := range patches {
		patched, err := applyPatch(cfg, patch.Text)
		if err != nil {
			c.note(&c.problems, spec.Problem{
				Path: patch.Path, Rule: "is not a patch that Talos can apply: " + keysOnly(err),
				Value: patch.Origin + ", for " + node.Name, Remedy: remedy(err),
			})

			continue
		}

		cfg = patched
	}

	return cfg
}

// blame names the patch that breaks a rule which the configuration held before.
func blame(cfg talosconfig.Provider, patches []spec.Patch, node plan.Node, rule string,
	broken func(talosconfig.Provider) bool,
) spec.Problem {
	problem := spec.Problem{Path: "pools." + node.Pool, Rule: rule, Value: node.Name}

	for _, patch := range patches {
		patched, err := applyPatch(cfg, patch.Text)
		if err != nil {
			continue // it is noted by itself
		}

		cfg = patched

		if broken(cfg) {
			problem.Path, problem.Value, problem.Remedy = patch.Path, patch.Origin+", for "+node.Name, "correct the patch"

			return problem
		}
	}

	return problem
}
