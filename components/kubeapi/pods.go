package kubeapi

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/components/wait"
)

// WaitStaticPod waits until a static pod of kube-system runs an image. A pod is called after what it is and its node.
func (c *Client) WaitStaticPod(ctx context.Context, component, node, image string, bound time.Duration,
	progress wait.Reporter,
) error {
	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		name, pod, err := c.staticPod(ctx, component, node)

		switch {
		case err != nil:
			return err
		case !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == image }):
			return wait.For("%s to run %s", name, image)
		case !ready(pod):
			return wait.For("%s to be ready", name)
		default:
			return nil
		}
	})
}

// CheckStaticPod says what a static pod of kube-system still lacks: it is to be there with these annotations, and to be
// ready.
func (c *Client) CheckStaticPod(ctx context.Context, component, node string, annotations map[string]string) error {
	name, pod, err := c.staticPod(ctx, component, node)
	if err != nil {
		return err
	}

	for key, value := range annotations {
		if pod.Annotations[key] != value {
			return wait.For("%s to run with its settings", name)
		}
	}

	if ready(pod) {
		return nil
	}

	for _, status := range pod.Status.ContainerStatuses {
		if w := status.State.Waiting; w != nil && w.Reason != "" {
			return wait.For("%s to be ready (%s)", name, w.Reason)
		}
	}

	return wait.For("%s to be ready", name)
}

// staticPod gets a static pod of kube-system. The error is to be waited for.
func (c *Client) staticPod(ctx context.Context, component, node string) (name string, pod *corev1.Pod, err error) {
	name = component + "-" + node
	pod, err = c.api.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		err = wait.For("%s to be there", name)
	case err != nil:
		err = wait.For("%s (%v)", name, wait.Reason(err))
	}

	return name, pod, err
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// WaitKubelet waits until the kubelet of a node has a version, and the node is ready.
func (c *Client) WaitKubelet(
	ctx context.Context, name, version string, bound time.Duration, progress wait.Reporter,
) error {
	return wait.Until(ctx, bound, progress, func(ctx context.Context) error {
		n, there, err := c.Node(ctx, name)

		switch {
		case err != nil:
			return wait.For("the kubelet of %s (%v)", name, wait.Reason(err))
		case !there || n.Kubelet != version:
			return wait.For("the kubelet of %s to be %s", name, version)
		case !n.Ready:
			return wait.For("%s to be ready in Kubernetes", name)
		default:
			return nil
		}
	})
}
