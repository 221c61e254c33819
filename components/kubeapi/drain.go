package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubectl/pkg/drain"

	"talos-proxmox/components/wait"
)

// evictEvery is how soon an eviction is tried again that a disruption budget has refused.
const evictEvery = time.Second

// Drain evicts the pods of a node, for at most the bound. Disruption budgets are respected: a pod that one of them
// holds stays, and is named in the error. Pods of DaemonSets and static pods stay in any case; pods that no controller
// will make again, and what pods keep on the node, are lost with it.
func (c *Client) Drain(ctx context.Context, name string, bound time.Duration, progress wait.Reporter) error {
	helper := &drain.Helper{
		Ctx: ctx, Client: c.api, Out: io.Discard, ErrOut: io.Discard,
		Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		// The grace period is the pod's own.
		GracePeriodSeconds: -1, Timeout: bound, EvictErrorRetryDelay: evictEvery,
	}

	list, errs := helper.GetPodsForDeletion(name)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the pods of %s cannot be listed: %w", name, err)
	}

	pods := list.Pods()
	if len(pods) == 0 {
		return nil
	}

	progress(fmt.Sprintf("draining %s of %d pods (at most %s)", name, len(pods), bound))

	err := helper.DeleteOrEvictPods(pods)
	if err == nil {
		return nil
	}

	if ctx.Err() != nil {
		return fmt.Errorf("interrupted while draining %s: %w", name, context.Cause(ctx))
	}

	held, why := c.holding(ctx, helper, name)
	if why != nil || len(held) == 0 {
		return fmt.Errorf("%s could not be drained within %s: %w", name, bound, err)
	}

	return fmt.Errorf("%s could not be drained within %s: %s", name, bound, strings.Join(held, "; "))
}

// holding says of each pod that is left on a node what keeps it there.
func (c *Client) holding(ctx context.Context, helper *drain.Helper, name string) ([]string, error) {
	list, errs := helper.GetPodsForDeletion(name)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	var held []string

	for _, pod := range list.Pods() {
		why, err := c.why(ctx, &pod)
		if err != nil {
			return nil, err
		}

		held = append(held, fmt.Sprintf("pod %s/%s %s", pod.Namespace, pod.Name, why))
	}

	return held, nil
}

func (c *Client) why(ctx context.Context, pod *corev1.Pod) (string, error) {
	if pod.DeletionTimestamp != nil {
		return "has not ended yet", nil
	}

	budgets, err := c.api.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}

	for _, b := range budgets.Items {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return "", err
		}

		if selector.Matches(labels.Set(pod.Labels)) && b.Status.DisruptionsAllowed == 0 {
			return fmt.Sprintf("is held by the disruption budget %s (%d healthy, %d required)", b.Name, b.Status.CurrentHealthy,
				b.Status.DesiredHealthy), nil
		}
	}

	return "is not evicted", nil
}
