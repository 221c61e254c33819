// Package spelling finds the name that was probably meant. It is pure.
package spelling

import "github.com/agext/levenshtein"

// Nearest is the most similar of some names, the first of several alike, whose Levenshtein distance is below a bound;
// empty when there is none.
func Nearest(name string, known []string, below int) string {
	best := ""

	for _, k := range known {
		if d := levenshtein.Distance(name, k, nil); d < below {
			best, below = k, d
		}
	}

	return best
}
