package manifests

import (
	"encoding/json"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// encode writes objects as YAML documents, without the status that only a server gives them.
func encode(objects []runtime.Object) (string, error) {
	var docs []string

	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			return "", err
		}

		var tree map[string]any
		if err := json.Unmarshal(text, &tree); err != nil {
			return "", err
		}

		delete(tree, "status")

		doc, err := yaml.Marshal(tree)
		if err != nil {
			return "", err
		}

		docs = append(docs, string(doc))
	}

	return strings.Join(docs, "---\n"), nil
}

// onControlPlanes has pods run on control planes only, whatever their taints, and before there is a pod network.
func onControlPlanes(spec corev1.PodSpec) corev1.PodSpec {
	spec.HostNetwork = true
	spec.NodeSelector = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}

	return spec
}

func typeOf(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

const jobAttempts = 100

// merged lays values over others, block by block, as Helm does.
func merged(base, over map[string]any) map[string]any {
	out := maps.Clone(base)

	for key, value := range over {
		below, block := out[key].(map[string]any)
		if nested, ok := value.(map[string]any); ok && block {
			out[key] = merged(below, nested)
		} else {
			out[key] = value
		}
	}

	return out
}
