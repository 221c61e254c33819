// Package manifests renders what Talos installs into Kubernetes in addition to its own: typed objects of k8s.io/api, as
// inline manifests of the machine configuration. Talos makes what is missing and never changes what is there. It is
// pure.
package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Manifest is an inline manifest: YAML documents under a name.
type Manifest struct{ Name, Contents string }

// Cilium is the name of the manifest that installs it.
const Cilium = "cilium"

// Inline are the manifests of a plan, for the machine configuration of every control plane.
func Inline(p *plan.Plan) ([]Manifest, error) {
	var all []Manifest

	add := func(name string, objects []runtime.Object, err error) error {
		if err != nil {
			return fmt.Errorf("manifest %s: %w", name, err)
		}

		text, err := encode(objects)
		all = append(all, Manifest{name, text})

		return err
	}

	if p.EndpointMode == spec.EndpointKubeVIP {
		if err := add("kube-vip", kubeVIP(p), nil); err != nil {
			return nil, err
		}
	}

	if p.CNI == spec.CNICilium {
		objects, err := cilium(p)
		if err := add(Cilium, objects, err); err != nil {
			return nil, err
		}
	}

	addons := jobs(p)
	if len(addons) > 0 {
		if err := add("addons", installer(addonsName), nil); err != nil {
			return nil, err
		}
	}

	for _, name := range slices.Sorted(maps.Keys(addons)) {
		objects, err := addons[name].install(p, name)
		if err := add("addon-"+name, objects, err); err != nil {
			return nil, err
		}
	}

	return all, nil
}

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
