package kubeapi

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestSetLabels: labels and taints come, change and go, and those of others stay as they are.
func TestSetLabels(t *testing.T) {
	t.Parallel()

	const role = "node-role.kubernetes.io/worker"

	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	theirs := taint("theirs", "x", corev1.TaintEffectNoSchedule)
	labels := func(of string) map[string]string { return map[string]string{"theirs": "x", role: of} }

	for name, c := range map[string]struct {
		labels  map[string]string
		taints  []corev1.Taint
		notes   map[string]string
		want    NodeLabels
		changes LabelChanges

		labelled map[string]string
		tainted  []corev1.Taint
		noted    map[string]string
	}{
		"new": {
			labels: map[string]string{"theirs": "x"}, taints: []corev1.Taint{theirs},
			want: NodeLabels{Labels: map[string]string{role: ""}, Taints: []corev1.Taint{taint("gpu", "", "NoSchedule")}},
			changes: LabelChanges{Changes: []LabelChange{
				{Path: "labels." + role, After: `""`}, {Path: "taints.gpu:NoSchedule", After: `""`},
			}},
			labelled: labels(""), tainted: []corev1.Taint{theirs, taint("gpu", "", "NoSchedule")},
			noted: map[string]string{ownedLabels: `["` + role + `"]`, ownedTaints: `["gpu:NoSchedule"]`},
		},
		"a provider ID that no node has yet": {
			want:    NodeLabels{ProviderID: "proxmox://lan/401"},
			changes: LabelChanges{Changes: []LabelChange{{Path: "providerID", After: "proxmox://lan/401"}}},
		},
		"a value that is not known now": {
			labels: labels("a"), notes: map[string]string{ownedLabels: `["` + role + `"]`},
			want:     NodeLabels{Unknown: []string{role}},
			labelled: labels("a"), noted: map[string]string{ownedLabels: `["` + role + `"]`},
		},
		"there already, from the registration of the node": {
			labels: labels(""), taints: []corev1.Taint{taint("gpu", "", "NoSchedule")},
			want: NodeLabels{
				Labels: map[string]string{role: ""}, Taints: []corev1.Taint{taint("gpu", "", "NoSchedule")},
				Registered: []string{role},
			},
			labelled: labels(""), tainted: []corev1.Taint{taint("gpu", "", "NoSchedule")},
			noted: map[string]string{ownedLabels: `["` + role + `"]`, ownedTaints: `["gpu:NoSchedule"]`},
		},
		"there already, from Talos": {
			labels: labels(""), notes: map[string]string{talosLabels: `["` + role + `"]`},
			want:     NodeLabels{Labels: map[string]string{role: ""}},
			labelled: labels(""),
			noted:    map[string]string{ownedLabels: `["` + role + `"]`, talosLabels: `["` + role + `"]`},
		},
		"there already, from others": {
			labels: labels(""), notes: map[string]string{"note": "x"},
			want:     NodeLabels{Labels: map[string]string{role: ""}, Annotations: map[string]string{"note": "x"}},
			labelled: labels(""), noted: map[string]string{"note": "x"},
		},
		"there already, from others, on a node that has noted what it registered with": {
			labels: map[string]string{"tier": "db", "theirs": "x"},
			taints: []corev1.Taint{taint("gpu", "", "NoSchedule"), theirs},
			notes:  map[string]string{ownedLabels: `["tier"]`, ownedTaints: `["gpu:NoSchedule"]`},
			want: NodeLabels{
				Labels:     map[string]string{"tier": "db", "theirs": "x"},
				Taints:     []corev1.Taint{taint("gpu", "", "NoSchedule"), theirs},
				Registered: []string{"theirs", "tier"},
			},
			labelled: map[string]string{"tier": "db", "theirs": "x"},
			tainted:  []corev1.Taint{taint("gpu", "", "NoSchedule"), theirs},
			noted:    map[string]string{ownedLabels: `["tier"]`, ownedTaints: `["gpu:NoSchedule"]`},
		},
		"changed": {
			labels: labels("a"), taints: []corev1.Taint{theirs, taint("gpu", "a", "NoSchedule"), taint("gpu", "a", "NoExecute")},
			notes: map[string]string{ownedLabels: `["` + role + `"]`, ownedTaints: `["gpu:NoSchedule","gpu:NoExecute"]`},
			want:  NodeLabels{Labels: map[string]string{role: "b"}, Taints: []corev1.Taint{taint("gpu", "b", "NoSchedule")}},
			changes: LabelChanges{Changes: []LabelChange{
				{Path: "labels." + role, Before: "a", After: "b"},
				{Path: "taints.gpu:NoSchedule", Before: "a", After: "b"},
				{Path: "taints.gpu:NoExecute", Before: "a"},
			}},
			labelled: labels("b"), tainted: []corev1.Taint{theirs, taint("gpu", "b", "NoSchedule")},
			noted: map[string]string{ownedLabels: `["` + role + `"]`, ownedTaints: `["gpu:NoSchedule"]`},
		},
		"gone": {
			labels: labels(""), taints: []corev1.Taint{taint("gpu", "", "NoSchedule"), theirs},
			notes: map[string]string{
				ownedLabels: `["` + role + `","lost"]`, ownedTaints: `["gpu:NoSchedule","lost:NoSchedule"]`, "a": "b",
			},
			changes: LabelChanges{Changes: []LabelChange{
				{Path: "labels." + role, Before: `""`}, {Path: "taints.gpu:NoSchedule", Before: `""`},
			}},
			labelled: map[string]string{"theirs": "x"}, tainted: []corev1.Taint{theirs}, noted: map[string]string{"a": "b"},
		},
		"set by others": {
			labels: labels("x"), taints: []corev1.Taint{theirs},
			want: NodeLabels{
				Labels: map[string]string{role: "y"}, Taints: []corev1.Taint{taint("theirs", "y", "NoSchedule")},
			},
			changes: LabelChanges{Foreign: []LabelChange{
				{Path: "labels." + role, Before: "x", After: "y"}, {Path: "taints.theirs:NoSchedule", Before: "x", After: "y"},
			}},
			labelled: labels("x"), tainted: []corev1.Taint{theirs},
		},
		"thought its own by Talos": {
			labels: labels(""), taints: []corev1.Taint{theirs},
			notes:    map[string]string{talosLabels: `["` + role + `","tier"]`, talosTaints: `["theirs"]`},
			want:     NodeLabels{Restricted: func(key string) bool { return key == role }},
			labelled: labels(""), tainted: []corev1.Taint{theirs}, noted: map[string]string{talosLabels: `["tier"]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			n := node("a", corev1.ConditionTrue)
			n.Labels, n.Annotations, n.Spec.Taints = c.labels, c.notes, c.taints
			client := &Client{api: fake.NewClientset(n)}

			found, err := client.SetLabels(t.Context(), "a", c.want, true)
			require.NoError(t, err)
			assert.Equal(t, c.changes, found)

			now, err := client.api.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, n, now, "a dry run changes nothing")

			for _, want := range []LabelChanges{c.changes, {Foreign: c.changes.Foreign}} {
				found, err = client.SetLabels(t.Context(), "a", c.want, false)
				require.NoError(t, err)
				assert.Equal(t, want, found)

				now, err = client.api.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
				require.NoError(t, err)
				assert.Equal(t, c.labelled, now.Labels)
				assert.Equal(t, c.tainted, now.Spec.Taints)
				assert.Equal(t, len(c.noted), len(now.Annotations))

				for key, value := range c.noted {
					assert.Equal(t, value, now.Annotations[key])
				}
			}

			all, err := client.Nodes(t.Context())
			require.NoError(t, err)
			assert.Equal(t, strings.Contains(strings.Join(annotations(now), " "), "/owned-"), all[0].Labelled)
		})
	}

	_, err := (&Client{api: fake.NewClientset()}).SetLabels(t.Context(), "a", NodeLabels{}, true)
	require.EqualError(t, err, `nodes "a" not found`)
}

func annotations(n *corev1.Node) []string {
	var keys []string
	for key := range n.Annotations {
		keys = append(keys, key)
	}

	return keys
}
