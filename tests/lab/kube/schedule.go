package kube

import (
	corev1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// mayRun tells whether a pod may be scheduled on a node, as the scheduler's own helpers see it: where the pod wants to be,
// and what it tolerates.
func mayRun(spec *corev1.PodSpec, n *corev1.Node) bool {
	wanted, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}).Match(n)
	if err != nil || !wanted {
		return false
	}

	return tolerates(spec, n.Spec.Taints)
}

// toleratesNotReady is whether a pod may go to a node that has no network yet.
func toleratesNotReady(spec *corev1.PodSpec) bool {
	return tolerates(spec, []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}})
}

func tolerates(spec *corev1.PodSpec, taints []corev1.Taint) bool {
	_, repelled := helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	}, false)

	return !repelled
}
