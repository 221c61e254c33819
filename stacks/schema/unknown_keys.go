package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"talos-proxmox/components/spec"
)

// unknownKey names the nearest key that exists at the same place. of is what the values are.
func unknownKey(of, path string, s *jsonschema.Schema, name string) spec.Problem {
	p := spec.Problem{Path: Join(path, name), Rule: "is not a key of " + of}

	known := slices.Sorted(maps.Keys(s.Properties))
	best, distance := "", len(name)/2+1

	for _, k := range known {
		if d := levenshtein.Distance(strings.ToLower(name), strings.ToLower(k), nil); d < distance {
			best, distance = k, d
		}
	}

	if best != "" {
		p.Remedy = fmt.Sprintf("did you mean %q?", best)
	} else {
		p.Remedy = "known here: " + strings.Join(known, ", ")
	}

	return p
}
