package kube

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

var strict = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
	json.SerializerOptions{Yaml: true, Strict: true})

// DecodeManifest reads the objects of a manifest, strictly; trees are all of them. Kinds that k8s.io/api does not have
// need a custom resource definition, which the lab does not play.
func DecodeManifest(text string) (objects []runtime.Object, trees []map[string]any, err error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))

	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return objects, trees, nil
		}

		if err != nil {
			return objects, trees, err
		}

		if onlyComments(doc) {
			continue
		}

		var tree map[string]any
		if err := utilyaml.Unmarshal(doc, &tree); err != nil {
			return objects, trees, err
		}

		trees = append(trees, tree)

		obj, _, err := strict.Decode(doc, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			continue
		}

		if err != nil {
			return objects, trees, fmt.Errorf("%v %v: %w", tree["kind"], tree["metadata"], err)
		}

		objects = append(objects, obj)
	}
}

func onlyComments(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}

	return true
}
