package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Check finds what Talos could not apply of the operator's manifests. It tells no content, which may be secret.
func Check(p *plan.Plan) spec.Problems {
	var problems spec.Problems

	for _, m := range p.Manifests {
		if m.URL() {
			continue
		}

		if rule := Wrong(m.Text); rule != "" {
			problems.Add(m.Path, "must be Kubernetes manifests: "+rule, m.Origin, "correct the manifest")
		}
	}

	return problems
}

// Wrong says why a text is no manifests; empty: it is.
func Wrong(text string) string {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))

	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			if n == 1 {
				return "there is none"
			}

			return ""
		}

		if err != nil {
			return fmt.Sprintf("document %d is no YAML", n)
		}

		var object unstructured.Unstructured

		// Only comments are no document.
		if err := yaml.Unmarshal(doc, &object.Object); err != nil {
			return fmt.Sprintf("document %d is no YAML", n)
		} else if len(bytes.TrimSpace(doc)) == 0 || object.Object == nil {
			continue
		}

		switch {
		case object.GetAPIVersion() == "":
			return fmt.Sprintf("document %d has no apiVersion", n)
		case object.GetKind() == "":
			return fmt.Sprintf("document %d has no kind", n)
		case object.GetName() == "" && !object.IsList():
			return fmt.Sprintf("document %d has no metadata.name", n)
		}
	}
}
