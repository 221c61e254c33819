package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/tests/lab/kube"
)

// TestNodeRestriction: what a kubelet's credentials may not do is refused, to the kubelet and to Talos on a worker, and
// with one part of a request all of it.
func TestNodeRestriction(t *testing.T) {
	f := start(t)
	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}

	require.ErrorContains(t, f.kubelet("node-1", func(k *kube.Kubelet) {
		k.RegisterLabels = map[string]string{"node-role.kubernetes.io/worker": "", "node.kubernetes.io/tier": "db"}
	}).Join(t.Context()), "is not allowed to set the following labels: node-role.kubernetes.io/worker")

	k := f.join("node-1", func(k *kube.Kubelet) {
		k.Node.Spec.Taints = []corev1.Taint{gpu}
		k.RegisterLabels = map[string]string{"tier": "", "topology.kubernetes.io/zone": "a"}
	})

	node := f.cluster.Node("node-1")
	require.Equal(t, []corev1.Taint{gpu}, node.Spec.Taints)
	require.Contains(t, node.Labels, "tier")

	// The kubelet starts again with other flags: they are for Nodes that are not there.
	k.Node.Spec.Taints, k.RegisterLabels = nil, map[string]string{"tier": "web"}
	require.NoError(t, k.Join(t.Context()))
	require.Equal(t, []corev1.Taint{gpu}, f.cluster.Node("node-1").Spec.Taints)
	require.Empty(t, f.cluster.Node("node-1").Labels["tier"])

	for name, c := range map[string]struct {
		spec kube.NodeSpec
		want string
	}{
		"taints": {
			kube.NodeSpec{
				Labels: map[string]string{"rack": "1"},
				Taints: []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}},
			},
			`node "node-1" is not allowed to modify taints`,
		},
		"labels": {
			kube.NodeSpec{Labels: map[string]string{
				"rack": "1", "app.kubernetes.io/component": "x", "tenant.node-restriction.kubernetes.io/a": "b",
			}},
			"is not allowed to modify labels: app.kubernetes.io/component, tenant.node-restriction.kubernetes.io/a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, k.Apply(t.Context(), c.spec), c.want)
			require.NotContains(t, f.cluster.Node("node-1").Labels, "rack")
		})
	}

	require.NoError(t, k.Apply(t.Context(), kube.NodeSpec{Labels: map[string]string{"rack": "1"}}))
	require.Equal(t, "1", f.cluster.Node("node-1").Labels["rack"])

	other := f.client("system:node:node-2", "system:nodes")
	_, err := other.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-3"}},
		metav1.CreateOptions{})
	require.ErrorContains(t, err, `node "node-2" is not allowed to modify node "node-3"`)

	_, err = f.api.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"node-role.kubernetes.io/worker":""}},"spec":{"taints":null}}`), metav1.PatchOptions{})
	require.NoError(t, err, "an administrator may")
	require.Empty(t, f.cluster.Node("node-1").Spec.Taints)
}
