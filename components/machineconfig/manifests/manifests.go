// Package manifests renders what Talos installs into Kubernetes in addition to its own: typed objects of k8s.io/api, as
// inline manifests of the machine configuration. Talos makes what is missing and never changes what is there. It is
// pure.
package manifests

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

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
