package kube_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubectl/pkg/drain"

	"talos-proxmox/tests/lab/kube"
)

var webLabels = map[string]string{"app": "web"}

// deploy makes a deployment of pods that anybody can move.
func (f *fixture) deploy(replicas int32) {
	f.Helper()

	_, err := f.api.AppsV1().Deployments("default").Create(f.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: webLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: webLabels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(f, err)
}

// budget makes a disruption budget for them and returns what is left of it.
func (f *fixture) budget(spec policyv1.PodDisruptionBudgetSpec) policyv1.PodDisruptionBudgetStatus {
	f.Helper()

	spec.Selector = &metav1.LabelSelector{MatchLabels: webLabels}
	b, err := f.api.PolicyV1().PodDisruptionBudgets("default").Create(f.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec,
	}, metav1.CreateOptions{})
	require.NoError(f, err)

	return b.Status
}

// web are the pods by their nodes.
func (f *fixture) web() map[string][]string {
	f.Helper()

	list, err := f.api.CoreV1().Pods("default").List(f.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(f, err)

	out := map[string][]string{}
	for _, p := range list.Items {
		out[p.Spec.NodeName] = append(out[p.Spec.NodeName], p.Name)
	}

	return out
}

func (f *fixture) evict(pod string) error {
	return f.api.PolicyV1().Evictions("default").Evict(f.Context(),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "default"}})
}

// What kubectl drains goes elsewhere, and the node is left alone until it is uncordoned.
func TestDrain(t *testing.T) {
	f := start(t)
	f.join("node-1")
	f.join("node-2")
	f.deploy(4)
	require.Len(t, f.web()["node-1"], 2)

	var out, errs bytes.Buffer

	helper := &drain.Helper{
		Ctx: t.Context(), Client: f.api, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, GracePeriodSeconds: -1,
		Timeout: 5 * time.Second, Out: &out, ErrOut: &errs,
	}
	node := f.cluster.Node("node-1")
	require.NoError(t, drain.RunCordonOrUncordon(helper, node, true))
	require.NoError(t, drain.RunNodeDrain(helper, "node-1"))
	require.Empty(t, f.web()["node-1"])
	require.Len(t, f.web()["node-2"], 4)
	require.Contains(t, f.cluster.Node("node-1").Spec.Taints,
		corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule})

	require.NoError(t, drain.RunCordonOrUncordon(helper, f.cluster.Node("node-1"), false))
	require.Empty(t, f.cluster.Node("node-1").Spec.Taints)
	require.NoError(t, f.evict(f.web()["node-2"][0]))
	require.Len(t, f.web()["node-1"], 1)
}

// A budget lets go as many as it can spare, and says what it needs.
func TestDisruptionBudgets(t *testing.T) {
	number, share := intstr.FromInt32, intstr.FromString

	for name, tc := range map[string]struct {
		spec             policyv1.PodDisruptionBudgetSpec
		desired, allowed int32
	}{
		"a number available":   {policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(number(2))}, 2, 1},
		"a share available":    {policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(share("50%"))}, 2, 1},
		"all available":        {policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(share("100%"))}, 3, 0},
		"a number unavailable": {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr(number(2))}, 1, 2},
		"none unavailable":     {policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr(number(0))}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.join("node-1")
			f.deploy(3)

			st := f.budget(tc.spec)
			require.Equal(t, []int32{3, 3, tc.desired, tc.allowed},
				[]int32{st.ExpectedPods, st.CurrentHealthy, st.DesiredHealthy, st.DisruptionsAllowed})

			// nothing that is evicted can go anywhere
			_, err := f.api.CoreV1().Nodes().Patch(t.Context(), "node-1", "application/merge-patch+json",
				[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
			require.NoError(t, err)

			for i, pod := range f.web()["node-1"] {
				if err = f.evict(pod); int32(i) < tc.allowed {
					require.NoError(t, err)

					continue
				}

				require.True(t, apierrors.IsTooManyRequests(err))
				require.EqualError(t, err, "Cannot evict pod as it would violate the pod's disruption budget.")
				require.True(t, apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause))
			}

			require.Len(t, f.web()["node-1"], int(3-tc.allowed))
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestEvictionsThatAreWrong(t *testing.T) {
	f := start(t)
	f.join("node-1")
	f.deploy(1)
	require.True(t, apierrors.IsNotFound(f.evict("missing")))

	pod := f.web()["node-1"][0]
	f.budget(policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt32(0))})

	_, err := f.api.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "second"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: webLabels}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, f.evict(pod), "This pod has more than one PodDisruptionBudget")
}

// A pod without a controller is scheduled, runs, and does not come back.
func TestPodOfItsOwn(t *testing.T) {
	f := start(t)
	f.join("node-1")

	_, err := f.api.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "alone", Labels: webLabels, Finalizers: []string{"lab/hold"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	p, err := f.api.CoreV1().Pods("default").Get(t.Context(), "alone", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "node-1", p.Spec.NodeName)
	require.Equal(t, corev1.PodRunning, p.Status.Phase)

	// it goes when what holds it lets go
	require.NoError(t, f.evict("alone"))

	p, err = f.api.CoreV1().Pods("default").Get(t.Context(), "alone", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, p.DeletionTimestamp)

	p.Finalizers = nil
	_, err = f.api.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Empty(t, f.web())
}

// A Node that was deleted stays away until its kubelet starts again.
func TestNodeDeleted(t *testing.T) {
	f := start(t)
	k := f.join("node-1", func(k *kube.Kubelet) {
		k.StaticPods = []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{
				Name: "kube-apiserver-node-1", Namespace: "kube-system",
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "1"},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "kube-apiserver"}}},
		}}
	})

	mirrors := func() int {
		list, err := f.api.CoreV1().Pods("kube-system").List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.nodeName=node-1"})
		require.NoError(t, err)

		return len(list.Items)
	}

	require.Equal(t, 5, mirrors())

	// static pods that are gone take their mirrors along
	k.StaticPods = []corev1.Pod{}
	require.NoError(t, k.Join(t.Context()))
	require.Equal(t, 4, mirrors())

	require.NoError(t, f.api.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}))

	_, err := f.api.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "node-1", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))

	k.Registered = true
	require.ErrorContains(t, k.Join(t.Context()), `nodes "node-1" not found`)

	k.Registered = false
	require.NoError(t, k.Join(t.Context()))
	require.NoError(t, k.Report(t.Context(), true, ""))
}

// A machine that goes down cordons itself, and undoes only that.
func TestCordonedByItself(t *testing.T) {
	f := start(t)
	k := f.join("node-1")

	for _, down := range []bool{true, false} {
		require.NoError(t, k.Apply(t.Context(), kube.NodeSpec{Cordoned: down}))
		require.Equal(t, down, f.cluster.Node("node-1").Spec.Unschedulable)
	}

	_, err := f.api.CoreV1().Nodes().Patch(t.Context(), "node-1", "application/merge-patch+json",
		[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, k.Apply(t.Context(), kube.NodeSpec{}))
	require.True(t, f.cluster.Node("node-1").Spec.Unschedulable)
}
