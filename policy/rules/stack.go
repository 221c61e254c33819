package rules

import (
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/tokens"
)

// Stack is all resources of a stack, in the order of their URNs.
type Stack struct {
	resources []Resource
	byURN     map[string]Resource
}

// NewStack takes the resources in any order.
func NewStack(resources []Resource) Stack {
	s := Stack{resources: slices.Clone(resources), byURN: map[string]Resource{}}
	slices.SortFunc(s.resources, func(a, b Resource) int { return strings.Compare(a.URN, b.URN) })

	for _, r := range s.resources {
		s.byURN[r.URN] = r
	}

	return s
}

func (s Stack) ofType(token string) []Resource {
	var found []Resource
	for _, r := range s.resources {
		if r.Type == token {
			found = append(found, r)
		}
	}

	return found
}

func (s Stack) name(urn string) string { return s.byURN[urn].Name }

// above is the nearest ancestor of a type.
func (s Stack) above(r Resource, token string) (Resource, bool) {
	for at := r.Parent; at != ""; at = s.byURN[at].Parent {
		if s.byURN[at].Type == token {
			return s.byURN[at], true
		}
	}

	return Resource{}, false
}

// vms are those of the URNs that are VMs.
func (s Stack) vms(urns []string) []Resource {
	var found []Resource
	for _, urn := range slices.Compact(slices.Sorted(slices.Values(urns))) {
		if r, ok := s.byURN[urn]; ok && r.Type == tokens.VM {
			found = append(found, r)
		}
	}

	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
