package spec

import (
	"bytes"
	"encoding/json"
	"strings"

	"sigs.k8s.io/yaml"
)

// InlineOrFile is a text of the operator's. In the configuration it is the text itself, or the path of a file that
// holds it, which is read before planning.
type InlineOrFile struct {
	Path   string // the configuration key it came from
	Origin string // the file it was read from, or the key again
	Text   string
}

// Patch is a Talos machine configuration patch (a strategic merge or a JSON patch, as Talos defines them).
type Patch = InlineOrFile

// UnmarshalJSON reads the text. A block of keys is read as the YAML that it is. What is neither is left to the schema,
// which says so: an error here would keep the rest of the configuration from being read.
func (t *InlineOrFile) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &t.Text) == nil || !bytes.HasPrefix(b, []byte("{")) {
		return nil
	}

	text, err := yaml.JSONToYAML(b)
	t.Text = string(text)

	return err
}

// URL says whether the text is where something is, and not what it is.
func (t InlineOrFile) URL() bool {
	return !strings.Contains(t.Text, "\n") &&
		(strings.HasPrefix(t.Text, "https://") || strings.HasPrefix(t.Text, "http://"))
}

// textOf is a JSON text, or a number as it is written.
func textOf(b []byte) string {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return string(b)
	}

	return s
}
