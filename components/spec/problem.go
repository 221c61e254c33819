package spec

import (
	"fmt"
	"strings"
)

// Problem is one thing wrong with the configuration, in the operator's words.
type Problem struct {
	Path   string // the configuration key, "pools.control.addresses"; empty where no key is at fault
	Rule   string // what must hold
	Value  string // what was given; empty when nothing was, or when it is secret
	Remedy string // what to change
	Detail string // lines to show below, such as a table; empty mostly
}

// String is the message: path, rule, value and remedy on one line, the detail on lines of its own.
func (p Problem) String() string {
	s := p.Rule
	if p.Path != "" {
		s = p.Path + ": " + s
	}

	if p.Value != "" {
		s += " (given: " + p.Value + ")"
	}

	if p.Remedy != "" {
		s += "; " + p.Remedy
	}

	if p.Detail != "" {
		s += "\n\n" + indent(p.Detail, "      ") + "\n"
	}

	return s
}

// Error makes a problem an error by itself.
func (p Problem) Error() string { return p.String() }

// Blocked is why a change of a running cluster is not made, and what to do about it.
func Blocked(rule, remedy string) error { return Problem{Rule: rule, Remedy: remedy} }

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}

// Problems is everything found wrong in one run, as one error.
type Problems []Problem

// Error lists all problems, one per line.
func (ps Problems) Error() string {
	lines := make([]string, 0, len(ps)+1)

	noun := "problems"
	if len(ps) == 1 {
		noun = "problem"
	}

	lines = append(lines, fmt.Sprintf("the configuration has %d %s:", len(ps), noun))
	for _, p := range ps {
		lines = append(lines, "  - "+p.String())
	}

	return strings.Join(lines, "\n")
}

// Err returns the problems as an error, nil when there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}

	return ps
}

// Unique returns the problems without repetitions, in order.
func (ps Problems) Unique() Problems {
	var kept Problems

	seen := make(map[Problem]bool, len(ps))

	for _, p := range ps {
		if !seen[p] {
			seen[p] = true
			kept = append(kept, p)
		}
	}

	return kept
}

// Add notes a problem; the value may be empty.
func (ps *Problems) Add(path, rule, value, remedy string) {
	*ps = append(*ps, Problem{Path: path, Rule: rule, Value: value, Remedy: remedy})
}
