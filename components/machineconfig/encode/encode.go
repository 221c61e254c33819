// Package encode writes Talos' types as YAML that says only what it means, without empty values. It is pure.
package encode

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v3"
)

// Document writes a document as a strategic merge patch. Talos' encoder writes some empty fields; a patch should say
// only what it means, so they are dropped.
func Document(doc config.Document) (string, error) {
	c, err := container.New(doc)
	if err != nil {
		return "", err
	}

	text, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return "", err
	}

	return Pruned(text, meaningful...)
}

// meaningful are keys whose empty value says something: that the key of a disk is of that kind.
var meaningful = []string{"nodeID", "tpm"}

// verbatim are keys below which empty values stay: a label may have one, and the core group of Kubernetes is one.
var verbatim = []string{"nodeLabels", "nodeAnnotations", "auditPolicy", "configuration"}

// Pruned is a YAML text without its empty values, except those of the keys that are to be kept.
func Pruned(text []byte, keep ...string) (string, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return "", err
	}

	prune(&node, keep)

	var b strings.Builder

	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(&node); err != nil {
		return "", err
	}

	return b.String(), enc.Close()
}

// prune removes empty values from a YAML tree and reports whether the node itself is empty.
func prune(n *yaml.Node, keep []string) bool {
	switch n.Kind {
	case yaml.DocumentNode:
		return prune(n.Content[0], keep)
	case yaml.MappingNode:
		var kept []*yaml.Node

		for i := 0; i < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			whole := slices.Contains(verbatim, key.Value) && len(value.Content) > 0

			if whole || !prune(value, keep) || slices.Contains(keep, key.Value) {
				kept = append(kept, key, value)
			}
		}

		n.Content = kept

		return len(kept) == 0
	case yaml.SequenceNode:
		for _, child := range n.Content {
			prune(child, keep)
		}

		return len(n.Content) == 0
	case yaml.ScalarNode:
		requote(n)

		fallthrough
	default:
		return n.Tag == "!!null" || n.Value == ""
	}
}

// requote quotes a text as gopkg.in/yaml.v3 does. Talos' encoder has changed its quotes between versions, and a patch
// that differs in them alone would be a change of each stack that exists.
func requote(n *yaml.Node) {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle

	var empty yaml.Node
	if n.Style&quoted != 0 && empty.Encode(n.Value) == nil {
		n.Style = empty.Style
	}
}
