package stacks

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"talos-proxmox/stacks/schema"
	"talos-proxmox/tests/golden"
)

// TestKeyTable keeps the key table of the documentation at what the schema says. The rest of the page is written by
// hand.
func TestKeyTable(t *testing.T) {
	const (
		page  = "docs/configuration.md"
		begin = "<!-- keys: written by go test ./stacks -run TestKeyTable -update -->\n"
		end   = "<!-- end of keys -->\n"
	)

	golden.CheckTable(t, page, begin, end, keyTable(t))
}

// keyTable lists every key once, under the block that it belongs to. The shape is one block, for it is the same in
// defaults, pools and nodes.
func keyTable(t *testing.T) string {
	keys := allKeys(t)

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

// TestSmallestStack: the pages show the file that is tested.
func TestSmallestStack(t *testing.T) {
	file, err := os.ReadFile("examples/Pulumi.smallest.yaml")
	if err != nil {
		t.Fatal(err)
	}

	_, stack, _ := strings.Cut(string(file), "\n")

	for _, name := range []string{"docs/configuration.md", "../README.md"} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(string(page), "```yaml\n"+stack+"```\n") {
			t.Errorf("%s does not show examples/Pulumi.smallest.yaml", name)
		}
	}
}
