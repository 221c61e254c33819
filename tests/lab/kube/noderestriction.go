package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// nodeRestriction is what the admission plugin of that name says to a change of a Node by a kubelet's credentials
// (Kubernetes: plugin/pkg/admission/noderestriction, admitNode). Talos and K3s start each API server with it. Before is
// nil for a Node that is created.
func nodeRestriction(who user, before, after runtime.Object) error {
	name, isNode := strings.CutPrefix(who.name, nodePrefix)
	node, ok := after.(*corev1.Node)

	if !ok || !isNode || !who.in("system:nodes") {
		return nil
	}

	forbid := func(format string, args ...any) error {
		return apierrors.NewForbidden(nodes.gr(), node.Name, fmt.Errorf(format, args...))
	}

	if node.Name != name {
		return forbid("node %q is not allowed to modify node %q", name, node.Name)
	}

	if before == nil {
		if forbidden := forbiddenLabels(node.Labels, nil); len(forbidden) > 0 {
			return forbid("node %q is not allowed to set the following labels: %s", name, strings.Join(forbidden, ", "))
		}

		return nil
	}

	was, ok := before.(*corev1.Node)
	if !ok {
		return nil
	}

	if !equal(node.Spec.Taints, was.Spec.Taints) {
		return forbid("node %q is not allowed to modify taints", name)
	}

	if !equal(node.OwnerReferences, was.OwnerReferences) {
		return forbid("node %q is not allowed to modify ownerReferences", name)
	}

	if forbidden := forbiddenLabels(node.Labels, was.Labels); len(forbidden) > 0 {
		return forbid("is not allowed to modify labels: %s", strings.Join(forbidden, ", "))
	}

	return nil
}

// forbiddenLabels are the labels that differ and that no kubelet may set.
func forbiddenLabels(now, before map[string]string) []string {
	changed := maps.Clone(now)
	maps.DeleteFunc(changed, func(key, value string) bool {
		old, there := before[key]

		return there && old == value
	})

	all := slices.Collect(maps.Keys(changed))

	for key := range before {
		if _, there := now[key]; !there {
			all = append(all, key)
		}
	}

	all = slices.DeleteFunc(all, func(key string) bool {
		return !under(key, corev1.LabelNamespaceNodeRestriction) && !unknownKubeletLabel(key)
	})
	slices.Sort(all)

	return all
}

// CheckNodeLabels says why a kubelet does not start with labels as its --node-labels.
func CheckNodeLabels(keys []string) error {
	unknown := slices.DeleteFunc(slices.Sorted(slices.Values(keys)), func(key string) bool { return !unknownKubeletLabel(key) })
	if len(unknown) == 0 {
		return nil
	}

	return fmt.Errorf("failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with "+
		"--node-labels: %v", unknown)
}

// unknownKubeletLabel tells whether a kubelet refuses to start with a label among its --node-labels (Kubernetes:
// cmd/kubelet/app/options, ValidateKubeletFlags).
func unknownKubeletLabel(key string) bool {
	return (under(key, "kubernetes.io") || under(key, "k8s.io")) && !kubeletapis.IsKubeletLabel(key)
}

// under tells whether the prefix of a label is a domain, or below it.
func under(key, domain string) bool {
	prefix, _, there := strings.Cut(key, "/")

	return there && (prefix == domain || strings.HasSuffix(prefix, "."+domain))
}
