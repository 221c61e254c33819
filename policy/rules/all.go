package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// All returns the rules, with the defaults that follow from the stack's configuration.
func All(f Facts) ([]Rule, error) {
	b := &builder{facts: f}
	all := slices.Concat(
		accessRules(b), secretRules(b), versionRules(b), tagRules(b), controlPlaneRules(b), gpuRules(b), networkRules(b),
		diskRules(b),
		capacityRules(b), certificateRules(b),
	)

	for _, name := range slices.Sorted(maps.Keys(f.Settings)) {
		if !slices.ContainsFunc(all, func(r Rule) bool { return r.Name == name }) {
			b.errs = append(b.errs, fmt.Errorf("%s.%s: is not a rule (known: %s); change the name", settingsKey, name,
				names(all)))
		}
	}

	return all, errors.Join(b.errs...)
}

func names(all []Rule) string {
	found := make([]string, len(all))
	for i, r := range all {
		found[i] = r.Name
	}

	return strings.Join(found, ", ")
}
