package nodesjson

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/stacks/config"
)

// block is the pools of a stack file, and where they are in it.
type block struct {
	key, pools *yaml.Node
	// The lines before and after, as they are.
	before, after []string
}

// find finds the block of pools in a stack file.
func find(file []byte) (*block, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(file, &document); err != nil {
		return nil, err
	}

	root := document.Content[0]
	keys := value(root, "config")
	at := max(index(keys, config.Project+":pools"), index(keys, "pools"))

	if at < 0 || keys.Style == yaml.FlowStyle || keys.Content[at+1].Kind != yaml.MappingNode {
		return nil,
			errors.New(
				"the stack file has no block of pools that could be written to: write it below config, on lines of its own")
	}

	lines := strings.SplitAfter(string(file), "\n")
	end := len(lines)

	// What comes next: a sibling of pools, or of config.
	if next := at + 2; next < len(keys.Content) {
		end = keys.Content[next].Line - 1
	} else if next := index(root, "config") + 2; next < len(root.Content) {
		end = root.Content[next].Line - 1
	}

	b := &block{key: keys.Content[at], pools: keys.Content[at+1]}
	end = remarks(lines[:end])
	b.before, b.after = lines[:b.key.Line-1], lines[end:]

	return b, nil
}

// remarks is where the comments and empty lines begin that end a text.
func remarks(lines []string) int {
	end := len(lines)
	for end > 0 {
		if line := strings.TrimSpace(lines[end-1]); line != "" && line[0] != '#' {
			break
		}

		end--
	}

	return end
}

// text writes the block as it is now.
func (b *block) text() (string, error) {
	var text bytes.Buffer

	e := yaml.NewEncoder(&text)
	e.SetIndent(2)

	if err := e.Encode(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{b.key, b.pools}}); err != nil {
		return "", err
	}

	lines := strings.SplitAfter(text.String(), "\n")
	first := slices.IndexFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "#") })

	return strings.Join(lines[first:remarks(lines)], ""), nil
}

// file writes the stack file with the block as it is now.
func (b *block) file(text string) []byte {
	indent := strings.Repeat(" ", b.key.Column-1)

	var inside strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			inside.WriteString(indent)
		}

		inside.WriteString(line)
	}

	return []byte(strings.Join(b.before, "") + inside.String() + strings.Join(b.after, ""))
}

// index is where a key of a mapping is, -1 when it is not there.
func index(mapping *yaml.Node, key string) int {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return -1
	}

	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return i
		}
	}

	return -1
}

func value(mapping *yaml.Node, key string) *yaml.Node {
	if i := index(mapping, key); i >= 0 {
		return mapping.Content[i+1]
	}

	return nil
}

func empty() *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle}
}

func put(mapping, key, value *yaml.Node) { mapping.Content = append(mapping.Content, key, value) }

func remove(mapping *yaml.Node, key string) {
	if i := index(mapping, key); i >= 0 {
		mapping.Content = slices.Delete(mapping.Content, i, i+2)
	}
}

// replace puts another key and value where a key is.
func replace(mapping *yaml.Node, key, by string, value *yaml.Node) {
	i := index(mapping, key)
	mapping.Content[i].Value, mapping.Content[i].LineComment = by, mapping.Content[i+1].LineComment
	mapping.Content[i+1] = value
}

func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// quoted is a number as a key: Pulumi takes no keys but texts.
func quoted(n int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strconv.Itoa(n), Style: yaml.DoubleQuotedStyle}
}
