package kube

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMayRun holds where pods go: a label without a value is not the same as no label.
func TestMayRun(t *testing.T) {
	t.Parallel()

	const role = "node-role.kubernetes.io/control-plane"

	taint := corev1.Taint{Key: role, Effect: corev1.TaintEffectNoSchedule}
	control := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "control", Labels: map[string]string{role: ""}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{taint}},
	}
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}

	everywhere := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	wants := func(o corev1.NodeSelectorOperator) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key:      role,
				Operator: o,
			}}}},
		}}}
	}

	for name, c := range map[string]struct {
		spec            corev1.PodSpec
		control, worker bool
	}{
		"plain":                {corev1.PodSpec{}, false, true},
		"tolerates everything": {corev1.PodSpec{Tolerations: everywhere}, true, true},
		"tolerates the taint":  {corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: role}}}, true, true},
		"tolerates another": {corev1.PodSpec{Tolerations: []corev1.Toleration{{
			Key:      "other",
			Operator: corev1.TolerationOpExists,
		}}}, false, true},
		"selects": {corev1.PodSpec{Tolerations: everywhere, NodeSelector: map[string]string{role: ""}}, true, false},
		"selects another": {
			corev1.PodSpec{Tolerations: everywhere, NodeSelector: map[string]string{role: "x"}},
			false,
			false,
		},
		"wants the label": {
			corev1.PodSpec{Tolerations: everywhere, Affinity: wants(corev1.NodeSelectorOpExists)},
			true,
			false,
		},
		"wants no label": {
			corev1.PodSpec{Tolerations: everywhere, Affinity: wants(corev1.NodeSelectorOpDoesNotExist)},
			false,
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			assert.Equal(t, c.control, mayRun(&c.spec, control))
			assert.Equal(t, c.worker, mayRun(&c.spec, worker))
		})
	}
}
