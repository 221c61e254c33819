package k3s

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/plan/plantest"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
)

// TestRestartContinues: an earlier run has emptied a node and was cut off, or its VM did not start. The VM is restarted
// as it is, and the turn ends when the node is ready and takes pods again.
func TestRestartContinues(t *testing.T) {
	var (
		api   = fake.NewClientset()
		kube  = kubeapi.Of(api)
		p     = plantest.K3s(t)
		agent = plan.Node{Name: "edge-agent-1", Role: spec.RoleWorker}
	)

	node := func(name string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		}
	}

	for _, n := range []*corev1.Node{
		node("edge-server-1", corev1.ConditionTrue),
		node("edge-agent-1", corev1.ConditionUnknown),
	} {
		_, err := api.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	require.NoError(t, kube.Cordon(t.Context(), "edge-agent-1"))

	p.MaxUnavailable, p.ReadyTimeout, p.UpgradeTimeout = 1, time.Minute, time.Millisecond

	k := clusterOf(p, "10.0.0.11", "of an administrator")
	k.connect = func([]byte, string) (*kubeapi.Client, error) { return kube, nil }

	r := rollout.New(p, rollout.NewLimiter(1), silent)
	d, err := r.Prepare(t.Context(), agent, k.Restart(agent), "")
	require.NoError(t, err)
	require.NoError(t, d.Undo(t.Context()), "it was not drained")
	require.EqualError(t, d.Finish(t.Context()), "gave up after 1ms, waiting for edge-agent-1 to be ready in Kubernetes")

	back, err := api.CoreV1().Nodes().Get(t.Context(), "edge-agent-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, back.Spec.Unschedulable, "not before it is ready")

	back.Status = node("", corev1.ConditionTrue).Status
	_, err = api.CoreV1().Nodes().UpdateStatus(t.Context(), back, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, d.Finish(t.Context()))

	now, there, err := kube.Node(t.Context(), "edge-agent-1")
	require.NoError(t, err)
	assert.True(t, there)
	assert.False(t, now.Cordoned)
}
