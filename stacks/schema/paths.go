package schema

import (
	"slices"
	"strconv"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Join is the path of a key below another.
func Join(path, step string) string {
	if path == "" {
		return step
	}

	return path + "." + step
}

// locate writes a location as a configuration path, "proxmox.hosts[0].name", and finds the schema there; it is nil
// where there is none.
func locate(s *jsonschema.Schema, location []string) (string, *jsonschema.Schema) {
	path := ""
	s = Follow(s)

	for _, step := range location {
		var list bool

		if s, list = below(s, step); list {
			path += "[" + step + "]"
		} else {
			path = Join(path, step)
		}
	}

	return path, s
}

// below is the schema of one step down, and whether the step is a place in a list.
func below(s *jsonschema.Schema, step string) (next *jsonschema.Schema, list bool) {
	if s == nil {
		return nil, false
	}

	for _, alternative := range append(slices.Clone(s.OneOf), s) {
		alternative = Follow(alternative)

		if next, ok := alternative.Properties[step]; ok {
			return Follow(next), false
		}

		if alternative.Items2020 != nil {
			return Follow(alternative.Items2020), true
		}

		if next, ok := alternative.AdditionalProperties.(*jsonschema.Schema); ok {
			return Follow(next), false
		}
	}

	return nil, false
}

// Follow is the schema that a reference leads to.
func Follow(s *jsonschema.Schema) *jsonschema.Schema {
	for s != nil && s.Ref != nil {
		s = s.Ref
	}

	return s
}

// valueAt is a part of a value; nil: there is none.
func valueAt(value any, location []string) any {
	for _, step := range location {
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				return nil
			}

			value = v[i]
		default:
			return nil
		}
	}

	return value
}

// Keys are the keys of a schema by their paths, with <name> for what the operator names.
func Keys(root *jsonschema.Schema) map[string]*jsonschema.Schema {
	found := map[string]*jsonschema.Schema{}

	var walk func(path string, s *jsonschema.Schema)

	walk = func(path string, s *jsonschema.Schema) {
		s = Follow(s)

		for name, child := range s.Properties {
			found[Join(path, name)] = child
			walk(Join(path, name), child)
		}

		if items := Follow(s.Items2020); items != nil && len(items.Properties) > 0 {
			walk(path+"[]", items)
		}

		if more, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
			walk(Join(path, "<name>"), more)
		}
	}

	walk("", root)

	return found
}
