package conformance

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// runPods is the kubelet of a node whose containers do nothing: with its own credentials it reports pods as running, and
// ends those that are deleted. It runs those that the lab runs.
func runPods(ctx context.Context, config *rest.Config, name string) {
	api := kubernetes.NewForConfigOrDie(config)

	for ctx.Err() == nil {
		list, err := api.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
		if err == nil {
			for i := range list.Items {
				runPod(ctx, api, &list.Items[i])
			}
		}

		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// runPod goes one step with a pod. What fails is tried again.
func runPod(ctx context.Context, api kubernetes.Interface, p *corev1.Pod) {
	now, none := metav1.Now(), int64(0)

	switch {
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
	case p.DeletionTimestamp != nil:
		_ = api.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
	case p.Status.Phase == corev1.PodPending:
		ready := corev1.ConditionTrue
		if slices.ContainsFunc(p.Spec.Containers, refused) {
			ready = corev1.ConditionFalse
		}

		p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &now
		p.Status.PodIP = "10.244.0.9"
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.HostIP = "10.5.0.9"

		for _, t := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
			status := ready
			if t == corev1.PodInitialized {
				status = corev1.ConditionTrue
			}

			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: t, Status: status, LastTransitionTime: now})
		}

		for _, c := range p.Spec.Containers {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, Image: c.Image, Ready: ready == corev1.ConditionTrue,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			})
		}

		_, _ = api.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	}
}

// refused says that Talos does not start a container: nothing may load modules there.
func refused(c corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Capabilities != nil &&
		slices.Contains(c.SecurityContext.Capabilities.Add, "SYS_MODULE")
}
