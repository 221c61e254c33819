package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// TestRestrictedLabel holds who may set a label, by the rules of NodeRestriction.
func TestRestrictedLabel(t *testing.T) {
	t.Parallel()

	for key, restricted := range map[string]bool{
		"tier":                                    false,
		"example.com/tier":                        false,
		"notkubernetes.io/tier":                   false,
		"topology.kubernetes.io/zone":             false,
		"topology.kubernetes.io/rack":             true,
		"node.kubernetes.io/instance-type":        false,
		"kubelet.kubernetes.io/a":                 false,
		"node-role.kubernetes.io/worker":          true,
		"app.kubernetes.io/component":             true,
		"node.k8s.io/a":                           true,
		"node-restriction.kubernetes.io/a":        true,
		"tenant.node-restriction.kubernetes.io/a": true,
	} {
		assert.Equal(t, restricted, RestrictedLabel(key), key)
	}
}

// TestNodeLabels: labels without a value are labels, and a taint without one has none.
func TestNodeLabels(t *testing.T) {
	t.Parallel()

	n := Node{
		Labels: map[string]string{"tier": "", "node-role.kubernetes.io/worker": ""},
		Taints: map[string]string{"b": "NoExecute", "a": "x:NoSchedule"},
	}
	assert.Equal(t, map[string]string{"tier": ""}, n.OwnLabels())
	assert.Equal(t, map[string]string{"node-role.kubernetes.io/worker": ""}, n.RestrictedLabels())
	assert.Equal(t, []corev1.Taint{{Key: "a", Value: "x", Effect: "NoSchedule"}, {Key: "b", Effect: "NoExecute"}},
		n.TaintList())
	assert.Empty(t, Node{}.OwnLabels())
	assert.Len(t, n.Labels, 2)
}
