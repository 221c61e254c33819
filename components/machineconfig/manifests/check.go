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

// Check finds what could not be applied of the operator's manifests. It tells no content, which may be secret.
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

// Wrong says why a text is not manifests; empty: it is.
func Wrong(text string) string {
	if _, err := Objects(text); err != nil {
		return err.Error()
	}

	return ""
}

// Objects are the objects of a text, those of lists one by one. An error tells no content, which may be secret.
func Objects(text string) ([]*unstructured.Unstructured, error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))

	var all []*unstructured.Unstructured

	for n := 1; ; n++ {
		doc, err := docs.Read()

		switch {
		case errors.Is(err, io.EOF) && n == 1:
			return nil, errors.New("there is none")
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("document %d cannot be read as YAML", n)
		}

		object := &unstructured.Unstructured{}

		// Only comments are no document.
		if err := yaml.Unmarshal(doc, &object.Object); err != nil {
			return nil, fmt.Errorf("document %d cannot be read as YAML", n)
		} else if len(bytes.TrimSpace(doc)) == 0 || object.Object == nil {
			continue
		}

		switch {
		case object.GetAPIVersion() == "":
			return nil, fmt.Errorf("document %d has no apiVersion", n)
		case object.GetKind() == "":
			return nil, fmt.Errorf("document %d has no kind", n)
		case object.IsList():
			list, err := object.ToList()
			if err != nil {
				return nil, fmt.Errorf("document %d is a list of something else than objects", n)
			}

			for i := range list.Items {
				all = append(all, &list.Items[i])
			}
		case object.GetName() == "":
			return nil, fmt.Errorf("document %d has no metadata.name", n)
		default:
			all = append(all, object)
		}
	}
}
