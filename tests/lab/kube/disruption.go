package kube

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// runBudgets counts what each disruption budget allows (Kubernetes: pkg/controller/disruption/disruption.go).
func (c *Cluster) runBudgets() {
	for _, obj := range c.listLocked(budgets, "") {
		b := obj.(*policyv1.PodDisruptionBudget)

		sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue
		}

		var covered []*corev1.Pod

		healthy := 0

		for _, o := range c.listLocked(pods, b.Namespace) {
			p := o.(*corev1.Pod)
			if !sel.Matches(labels.Set(p.Labels)) || completed(p) {
				continue
			}

			covered = append(covered, p)

			if podReady(p) && p.DeletionTimestamp.IsZero() {
				healthy++
			}
		}

		expected, desired := c.expectation(b, covered)
		allowed := max(0, healthy-desired)

		if expected <= 0 {
			allowed = 0
		}

		b.Status.ObservedGeneration = b.Generation
		b.Status.ExpectedPods, b.Status.CurrentHealthy = int32(expected), int32(healthy)
		b.Status.DesiredHealthy, b.Status.DisruptionsAllowed = int32(desired), int32(allowed)

		cond := metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Generation,
		}
		if allowed > 0 {
			cond.Status, cond.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
		}

		meta.SetStatusCondition(&b.Status.Conditions, cond)
		c.replace(budgets, b)
	}
}

// expectation is how many pods a budget expects, and how many of them must be healthy. A number that must be available
// is counted against the pods that are there; all else against what their controllers want.
func (c *Cluster) expectation(b *policyv1.PodDisruptionBudget, covered []*corev1.Pod) (expected, desired int) {
	scale := func(v *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(v, expected, true)
		if err != nil {
			return 0
		}

		return n
	}

	switch {
	case b.Spec.MaxUnavailable != nil:
		expected = c.wanted(covered)

		return expected, max(0, expected-scale(b.Spec.MaxUnavailable))
	case b.Spec.MinAvailable == nil:
		return len(covered), 0
	case b.Spec.MinAvailable.Type == intstr.Int:
		return len(covered), int(b.Spec.MinAvailable.IntVal)
	default:
		expected = c.wanted(covered)

		return expected, scale(b.Spec.MinAvailable)
	}
}

// wanted sums up what the controllers of pods want. Pods without one do not count.
func (c *Cluster) wanted(covered []*corev1.Pod) int {
	seen, sum := map[string]bool{}, 0

	for _, p := range covered {
		ref := metav1.GetControllerOf(p)
		if ref == nil || ref.Kind != "Deployment" || seen[ref.Name] {
			continue
		}

		seen[ref.Name] = true

		if obj, ok := c.objects[deployments][key(p.Namespace, ref.Name)]; ok {
			sum += int(replicas(obj.(*appsv1.Deployment)))
		}
	}

	return sum
}
