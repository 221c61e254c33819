package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"talos-proxmox/stacks/schema"
)

// keyTable lists every key once, under the block that it belongs to. The shape is one block, for it is the same in
// defaults, pools and nodes.
func keyTable(keys map[string]*jsonschema.Schema) string {
	var b strings.Builder

	shape := map[string]bool{}

	for key := range keys {
		if rest, ok := strings.CutPrefix(key, "defaults."); ok {
			shape[rest] = true
		}
	}

	blocks := map[string][]string{}

	for key := range keys {
		block, _, nested := strings.Cut(key, ".")
		if !nested {
			block = ""
		}

		for _, at := range []string{"pools.<name>.", "pools.<name>.nodes.<name>.", "pools.<name>.gpus.<name>."} {
			if rest, ok := strings.CutPrefix(key, at); ok && shape[rest] {
				block = "-" // listed with defaults
			}
		}

		blocks[block] = append(blocks[block], key)
	}

	delete(blocks, "-")

	for _, block := range slices.Sorted(maps.Keys(blocks)) {
		switch block {
		case "":
			b.WriteString("\n### Top level\n")
		case "defaults":
			b.WriteString("\n### Shape: `defaults`, and the same keys in `pools.<name>`, `pools.<name>.nodes.<n>` and " +
				"`pools.<name>.gpus.<n>`\n")
		default:
			fmt.Fprintf(&b, "\n### `%s`\n", block)
		}

		b.WriteString("\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n")
		slices.Sort(blocks[block])

		for _, key := range blocks[block] {
			s := keys[key]
			if block == "defaults" {
				key = strings.TrimPrefix(key, "defaults.")
			}

			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", key, typeOf(s), defaultOf(s), s.Description)
		}
	}

	b.WriteString("\n")

	return strings.NewReplacer("pools.<name>.nodes.<name>", "pools.<name>.nodes.<n>", "pools.<name>.gpus.<name>",
		"pools.<name>.gpus.<n>").
		Replace(b.String())
}

func typeOf(s *jsonschema.Schema) string {
	s = schema.Follow(s)

	if s.Enum != nil {
		var values []string
		for _, v := range s.Enum.Values {
			values = append(values, fmt.Sprintf("`%v`", v))
		}

		return strings.Join(values, ", ")
	}

	if len(s.OneOf) > 0 {
		var all []string
		for _, one := range s.OneOf {
			all = append(all, typeOf(one))
		}

		return strings.Join(all, " or ")
	}

	switch kind := s.Types.ToStrings()[0]; kind {
	case "array":
		return "list of " + typeOf(s.Items2020)
	case "object":
		if more, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
			return "map of " + typeOf(more)
		}

		return "object"
	case "string":
		return "string"
	case "boolean":
		return "bool"
	default:
		return "number"
	}
}

func defaultOf(s *jsonschema.Schema) string {
	if s.Default == nil {
		return ""
	}

	return fmt.Sprintf("`%v`", *s.Default)
}
