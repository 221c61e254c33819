package machineconfig

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unknownKeys is how Talos begins to quote what it does not know, everything below it included.
const unknownKeys = "unknown keys found during decoding:"

// keysOnly leaves of what Talos quotes the keys: below a mistyped one there may be a password.
func keysOnly(err error) string {
	message, quoted, ok := strings.Cut(err.Error(), unknownKeys)
	if !ok {
		return oneLine(err)
	}

	var tree map[string]any
	if yaml.Unmarshal([]byte(quoted), &tree) != nil {
		return oneLine(errors.New(message + "unknown keys"))
	}

	var paths []string

	// Talos quotes the way to the unknown key; where it ends or forks, its value begins.
	for at := tree; ; {
		keys := slices.Sorted(maps.Keys(at))
		if len(keys) != 1 {
			break
		}

		paths = append(paths, keys[0])

		next, below := at[keys[0]].(map[string]any)
		if !below {
			break
		}

		at = next
	}

	return oneLine(errors.New(message+unknownKeys)) + " " + strings.Join(paths, ".")
}

// remedy for a patch that cannot be applied.
func remedy(err error) string {
	if strings.Contains(err.Error(), "JSON6902") {
		return "write it as a strategic merge patch: since Talos 1.12 a machine configuration has several documents"
	}

	return "correct the patch"
}

// listed is how Talos' errors begin a list.
var listed = regexp.MustCompile(`\d+ errors? occurred: \* `)

// quotedValue is where errors of Talos and of YAML quote a value, which may be secret.
var quotedValue = regexp.MustCompile(
	"(cannot (?:unmarshal|construct) !!\\w+|wrong key|unknown anchor) (?:`[^`]*`|\"[^\"]*\"|'[^']*')")

// faults are the errors of a list of Talos', which comes over several lines. They quote no values.
func faults(err error) []string {
	if err == nil {
		return nil
	}

	text := quotedValue.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), "$1")

	return strings.Split(listed.ReplaceAllString(text, ""), " * ")
}

// oneLine folds Talos' errors.
func oneLine(err error) string { return strings.Join(faults(err), "; ") }
