package plan

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// RestrictedLabel says that a kubelet refuses to register with a label, and that the API server refuses it from the
// credentials of a node (Kubernetes: NodeRestriction). An administrator can set it.
func RestrictedLabel(key string) bool {
	prefix, _, prefixed := strings.Cut(key, "/")
	below := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }

	return prefixed && (below("kubernetes.io") || below("k8s.io")) && !kubeletapis.IsKubeletLabel(key)
}

// RestrictedIn are the restricted labels of a list as node-labels of a kubelet has it: "a=b,c=d".
func RestrictedIn(list string) []string {
	var found []string

	for _, label := range strings.Split(list, ",") {
		if key, _, _ := strings.Cut(strings.TrimSpace(label), "="); RestrictedLabel(key) {
			found = append(found, key)
		}
	}

	return found
}

// OwnLabels are the labels of a node that its own credentials may set.
func (n Node) OwnLabels() map[string]string {
	return n.labels(func(key string) bool { return !RestrictedLabel(key) })
}

// RestrictedLabels are the labels of a node that only an administrator may set.
func (n Node) RestrictedLabels() map[string]string { return n.labels(RestrictedLabel) }

func (n Node) labels(keep func(string) bool) map[string]string {
	kept := maps.Clone(n.Labels)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !keep(key) })

	return kept
}

// TaintList are the taints of a node as Kubernetes has them, by key.
func (n Node) TaintList() []corev1.Taint {
	var all []corev1.Taint

	for _, key := range slices.Sorted(maps.Keys(n.Taints)) {
		value, effect, both := strings.Cut(n.Taints[key], ":")
		if !both {
			value, effect = "", value
		}

		all = append(all, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	return all
}
