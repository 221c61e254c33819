package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
			return nil, errors.New("no manifest found")
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

		items := []*unstructured.Unstructured{object}

		if object.IsList() {
			if items, err = listed(object); err != nil {
				return nil, fmt.Errorf("document %d is a list of items that are not objects", n)
			}
		}

		for _, item := range append(items, object) {
			if rule := wrong(item); rule != "" {
				return nil, fmt.Errorf("document %d %s", n, rule)
			}
		}

		all = append(all, items...)
	}
}

func listed(list *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	read, err := list.ToList()
	if err != nil {
		return nil, err
	}

	var items []*unstructured.Unstructured
	for i := range read.Items {
		items = append(items, &read.Items[i])
	}

	return items, nil
}

// wrong says why the API server would not take an object; empty: nothing is known.
func wrong(object *unstructured.Unstructured) string {
	switch {
	case object.GetAPIVersion() == "":
		return "has no apiVersion"
	case object.GetKind() == "":
		return "has no kind"
	case object.GetName() == "" && !object.IsList():
		return "has no metadata.name"
	}

	if object.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Secret") {
		return ""
	}

	for _, field := range []string{"data", "stringData"} {
		if _, _, err := unstructured.NestedStringMap(object.Object, field); err != nil {
			return "is a Secret, and " + field + " has a value that is not a string: put it in quotes"
		}
	}

	return ""
}
