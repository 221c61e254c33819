package kubeapi

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of a node that name the labels, taints and annotations that are this program's. No others are changed.
// Server-side apply would not do: the taints of a node are one value to it.
const (
	ownedLabels      = "talos-proxmox/owned-labels"
	ownedTaints      = "talos-proxmox/owned-taints"
	ownedAnnotations = "talos-proxmox/owned-annotations"
)

// Annotations of a node that name the labels and taints that are Talos' own.
const (
	talosLabels = "talos.dev/owned-labels"
	talosTaints = "talos.dev/owned-taints"
)

// owned are the keys that an annotation names. One that cannot be read names none.
func owned(n *corev1.Node, annotation string) []string {
	var keys []string
	if json.Unmarshal([]byte(n.Annotations[annotation]), &keys) != nil {
		return nil
	}

	return keys
}

func setOwned(n *corev1.Node, annotation string, keys []string) {
	if len(keys) == 0 {
		delete(n.Annotations, annotation)

		return
	}

	text, _ := json.Marshal(keys) // texts always can be
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, annotation, string(text))
}

// labelled says that an annotation of a node names labels, taints or annotations of this program, or labels or taints
// of Talos.
func labelled(n *corev1.Node) bool {
	owned := []string{ownedLabels, ownedTaints, ownedAnnotations, talosLabels, talosTaints}

	return slices.ContainsFunc(owned, func(a string) bool { return n.Annotations[a] != "" })
}
