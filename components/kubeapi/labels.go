package kubeapi

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientretry "k8s.io/client-go/util/retry"
)

// NodeLabels are the labels, taints and annotations that this program gives a node.
type NodeLabels struct {
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	// Registered are the labels that the node registers with by its own configuration, as it does with all taints.
	Registered []string
	// Unknown are labels that the node is to have with a value that is not known now. They stay as they are.
	Unknown []string
	// ProviderID names the machine of a node that has no such name yet: it cannot be changed. Empty: none.
	ProviderID string
	// Restricted are labels that Talos must not think its own on this node: it could neither change nor remove them, nor
	// any taint, and fails for good with all that it is to set. nil: nothing is taken from Talos.
	Restricted func(key string) bool
}

// ProviderID is the path of changes of it.
const ProviderID = "providerID"

// LabelChange is a label, taint or annotation that differs. What is not there is empty, and an empty value is quoted.
type LabelChange struct{ Path, Before, After string }

// LabelChanges are what becomes of a node.
type LabelChanges struct {
	Changes []LabelChange
	// Foreign are the labels, taints and annotations that others have set to another value. They stay as they are.
	Foreign []LabelChange
}

// SetLabels brings the labels, taints and annotations of a node in line: those that it is to have, and those that this
// program has given it before. A dry run only says what differs.
func (c *Client) SetLabels(ctx context.Context, name string, want NodeLabels, dryRun bool) (LabelChanges, error) {
	var found LabelChanges

	err := clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error {
		now, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		after := now.DeepCopy()
		found = want.apply(after)

		if dryRun || equality.Semantic.DeepEqual(now, after) {
			return nil
		}

		patch, err := patchOf(now, after)
		if err != nil {
			return err
		}

		_, err = c.api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})

		return err
	})

	return found, err
}

// patchOf is the difference of two nodes, for as long as nothing else changes the first.
func patchOf(now, after *corev1.Node) ([]byte, error) {
	now = now.DeepCopy()
	now.ResourceVersion = ""

	from, err := json.Marshal(now)
	if err != nil {
		return nil, err
	}

	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}

	return jsonpatch.CreateMergePatch(from, to)
}

func (w NodeLabels) apply(n *corev1.Node) LabelChanges {
	var found LabelChanges

	applyTexts(n, &n.Labels, w.Labels, "labels.", ownedLabels, w.Unknown,
		slices.Concat(registered(n, ownedLabels, w.Registered), owned(n, talosLabels)), &found)
	applyTexts(n, &n.Annotations, w.Annotations, "annotations.", ownedAnnotations, nil, nil, &found)
	w.applyTaints(n, &found)

	id := LabelChange{Path: ProviderID, Before: n.Spec.ProviderID, After: w.ProviderID}

	switch {
	case w.ProviderID == "" || id.Before == id.After:
	case id.Before == "":
		n.Spec.ProviderID = w.ProviderID
		found.Changes = append(found.Changes, id)
	default:
		found.Foreign = append(found.Foreign, id)
	}

	if w.Restricted != nil {
		setOwned(n, talosLabels, slices.DeleteFunc(owned(n, talosLabels), w.Restricted))
		setOwned(n, talosTaints, nil)
	}

	return found
}

// registered are the keys that a node may have from its own registration, and that nothing has noted yet: the first
// change of the node's labels or taints notes them. What is there later, and not noted, others have set.
func registered(n *corev1.Node, annotation string, keys []string) []string {
	if len(owned(n, annotation)) > 0 {
		return nil
	}

	return keys
}

// applyTexts brings all labels or annotations of a node in line, except for unknown ones. What is there already as
// wanted is another's, unless it is noted, or the node came with it when it registered.
func applyTexts(n *corev1.Node, all *map[string]string, wanted map[string]string, path, annotation string,
	unknown, atRegistration []string, found *LabelChanges,
) {
	before := owned(n, annotation)

	var ours []string

	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		now, there := (*all)[key]
		change := LabelChange{Path: path + key, After: quoted(wanted[key])}

		if there {
			change.Before = quoted(now)
		}

		if there && now != wanted[key] && !slices.Contains(before, key) {
			found.Foreign = append(found.Foreign, change)

			continue
		}

		if there && !slices.Contains(before, key) && !slices.Contains(atRegistration, key) {
			continue
		}

		ours = append(ours, key)

		if change.Before != change.After {
			if *all == nil {
				*all = map[string]string{}
			}

			(*all)[key] = wanted[key]
			found.Changes = append(found.Changes, change)
		}
	}

	for _, key := range before {
		now, there := (*all)[key]
		if there && slices.Contains(unknown, key) {
			ours = append(ours, key)

			continue
		}

		if _, wanted := wanted[key]; there && !wanted {
			delete(*all, key)

			found.Changes = append(found.Changes, LabelChange{Path: path + key, Before: quoted(now)})
		}
	}

	setOwned(n, annotation, ours)
}

// taintID is what a node has one taint of.
func taintID(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

func (w NodeLabels) applyTaints(n *corev1.Node, found *LabelChanges) {
	before := owned(n, ownedTaints)
	at := func(all []corev1.Taint, id string) int {
		return slices.IndexFunc(all, func(t corev1.Taint) bool { return taintID(t) == id })
	}

	var ours, atRegistration []string
	for _, t := range w.Taints {
		atRegistration = append(atRegistration, taintID(t))
	}

	atRegistration = registered(n, ownedTaints, atRegistration)

	for _, t := range w.Taints {
		id := taintID(t)
		change := LabelChange{Path: "taints." + id, After: quoted(t.Value)}
		i := at(n.Spec.Taints, id)

		if i >= 0 {
			change.Before = quoted(n.Spec.Taints[i].Value)
		}

		if i >= 0 && change.Before != change.After && !slices.Contains(before, id) {
			found.Foreign = append(found.Foreign, change)

			continue
		}

		if i >= 0 && !slices.Contains(before, id) && !slices.Contains(atRegistration, id) {
			continue
		}

		ours = append(ours, id)

		switch {
		case change.Before == change.After:
			continue
		case i >= 0:
			n.Spec.Taints[i].Value = t.Value
		default:
			n.Spec.Taints = append(n.Spec.Taints, t)
		}

		found.Changes = append(found.Changes, change)
	}

	for _, id := range before {
		i := at(n.Spec.Taints, id)
		if i < 0 || at(w.Taints, id) >= 0 {
			continue
		}

		found.Changes = append(found.Changes, LabelChange{Path: "taints." + id, Before: quoted(n.Spec.Taints[i].Value)})
		n.Spec.Taints = slices.Delete(n.Spec.Taints, i, i+1)
	}

	setOwned(n, ownedTaints, ours)
}

// quoted tells an empty value from one that is not there.
func quoted(value string) string {
	if value == "" {
		return `""`
	}

	return value
}
