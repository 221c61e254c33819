package config

import (
	"errors"
	"slices"
	"strings"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Check plans the cluster, and adds all problems of the configuration to those that reading it has found, if any. The
// patches are checked where something else is wrong; otherwise the preflight checks do it, and give Talos' warnings,
// too. The plan is nil where none can be made. The error is of the checks themselves: problems are not in it.
func (c Config) Check(found spec.Problems) (*plan.Plan, spec.Problems, error) {
	var planned, patches spec.Problems

	p, err := c.Plan()
	if err != nil && !errors.As(err, &planned) {
		return nil, nil, err
	}

	more := slices.Concat(c.checkAccess(), c.checkSecrets(), c.checkPipeline(p), planned)
	if len(found)+len(more) == 0 {
		return p, nil, nil
	}

	if p == nil {
		patches, err = machineconfig.CheckPatches(c.Spec)
	} else if _, err = machineconfig.Check(p); errors.As(err, &patches) {
		err = nil
	}

	return p, merge(found, append(more, patches...)), err
}

// merge adds what was found in the values to what was found in the keys and in reading files, without what only follows
// from it.
func merge(keys, values spec.Problems) spec.Problems {
	all := keys

	for _, v := range values {
		follows := slices.ContainsFunc(keys, func(k spec.Problem) bool {
			return v.Path == k.Path || within(v.Path, k.Path) || within(k.Path, v.Path)
		})
		if !follows {
			all = append(all, v)
		}
	}

	return all.Unique()
}

// within says whether a path lies below another.
func within(path, above string) bool {
	rest, ok := strings.CutPrefix(path, above)

	return ok && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "["))
}
