package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// mayRun tells whether a pod may be scheduled on a node, as the scheduler's own helpers see it: where the pod wants to
// be, and what it tolerates.
func mayRun(spec *corev1.PodSpec, n *corev1.Node) bool {
	wanted, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}).Match(n)
	if err != nil || !wanted {
		return false
	}

	return tolerates(spec, n.Spec.Taints)
}

// place returns the node that a pod goes to: the least loaded of those that can take it, nil when none can.
func place(spec *corev1.PodSpec, all map[string]*corev1.Node, load map[string]int) *corev1.Node {
	var best *corev1.Node

	for _, name := range sortedNames(all) {
		n := all[name]
		// Pods of the lab run at once: none goes where no kubelet is, whatever it tolerates.
		if n.Spec.Unschedulable || nodeCondition(n) == corev1.ConditionUnknown || !mayRun(spec, n) {
			continue
		}

		if best == nil || load[name] < load[best.Name] {
			best = n
		}
	}

	return best
}

// schedulePods binds the pods that are not bound. The caller holds the lock.
func (c *Cluster) schedulePods(all map[string]*corev1.Node) {
	load := map[string]int{}
	for _, obj := range c.objects[pods] {
		load[obj.(*corev1.Pod).Spec.NodeName]++
	}

	for _, obj := range c.listLocked(pods, "") {
		p := obj.(*corev1.Pod)
		if p.Spec.NodeName != "" || completed(p) || !p.DeletionTimestamp.IsZero() {
			continue
		}

		if n := place(&p.Spec, all, load); n != nil {
			p.Spec.NodeName = n.Name
			load[n.Name]++
			c.replace(pods, p)
		}
	}
}

// taintNodes keeps the taints of nodes that are cordoned, not ready or silent, as the node lifecycle controller does.
func (c *Cluster) taintNodes() {
	for _, obj := range c.listLocked(nodes, "") {
		n := obj.(*corev1.Node)
		ready := nodeCondition(n)

		// One of which no kubelet has said anything is not ready (Kubernetes: plugin/pkg/admission/nodetaint).
		if len(n.Status.Conditions) == 0 {
			ready = corev1.ConditionFalse
		}

		for _, t := range []struct {
			taint corev1.Taint
			is    bool
		}{
			{corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, n.Spec.Unschedulable},
			{corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}, ready == corev1.ConditionFalse},
			{corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}, ready == corev1.ConditionFalse},
			{
				corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
				ready == corev1.ConditionUnknown,
			},
			{
				corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
				ready == corev1.ConditionUnknown,
			},
		} {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(other corev1.Taint) bool {
				return other.MatchTaint(&t.taint)
			})

			if t.is {
				n.Spec.Taints = append(n.Spec.Taints, t.taint)
			}
		}

		c.replace(nodes, n)
	}
}

func tolerates(spec *corev1.PodSpec, taints []corev1.Taint) bool {
	_, repelled := helpers.FindMatchingUntoleratedTaint(klog.Background(), taints, spec.Tolerations,
		func(t *corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule
		}, false)

	return !repelled
}
