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
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/kubectl/pkg/drain"

	"talos-proxmox/components/terminal"
	"talos-proxmox/components/wait"
)

// evictEvery is how soon an eviction is tried again that a disruption budget has refused.
const evictEvery = time.Second

// Drain evicts the pods of a node that is cordoned (rollout.Drain does both), for at most the bound. Disruption budgets
// are respected: a pod that one of them holds stays, and is named in the error. Pods of DaemonSets and static pods stay
// in any case; pods that no controller will make again, and what pods keep on the node, are lost with it.
func (c *Client) Drain(ctx context.Context, name string, bound time.Duration, progress wait.Reporter) error {
	helper := &drain.Helper{
		Ctx: ctx, Client: c.api, Out: io.Discard, ErrOut: io.Discard,
		Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		// The grace period is the pod's own.
		GracePeriodSeconds: -1, Timeout: bound, EvictErrorRetryDelay: evictEvery,
	}

	end := time.Now().Add(bound)

	for reported := ""; ; {
		list, errs := helper.GetPodsForDeletion(name)
		if err := terminal.Error(errors.Join(errs...)); err != nil {
			return fmt.Errorf("the pods of %s cannot be listed: %w", name, err)
		}

		pods := list.Pods()
		if len(pods) == 0 {
			return nil
		}

		if reported == "" {
			reported = fmt.Sprintf("draining %s of %d pods (at most %s)", name, len(pods), bound)
			progress(reported)
		}

		// 0 would be no bound.
		helper.Timeout = max(time.Until(end), time.Millisecond)

		// Webhooks are quoted in it.
		err := terminal.Error(helper.DeleteOrEvictPods(pods))
		if err == nil {
			return nil
		}

		if ctx.Err() != nil {
			return fmt.Errorf("interrupted while draining %s: %w", name, context.Cause(ctx))
		}

		if time.Until(end) <= evictEvery {
			return c.undrained(ctx, helper, name, bound, err)
		}

		// An admission webhook may deny what it does itself in a moment, or be away while its own pods move.
		if again := fmt.Sprintf("waiting to evict pods of %s again: %v", name, err); again != reported {
			reported = again
			progress(reported)
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted while draining %s: %w", name, context.Cause(ctx))
		case <-time.After(evictEvery):
		}
	}
}

// undrained says what keeps each pod that is left on a node.
func (c *Client) undrained(
	ctx context.Context, helper *drain.Helper, name string, bound time.Duration, err error,
) error {
	list, errs := helper.GetPodsForDeletion(name)
	if errors.Join(errs...) != nil || len(list.Pods()) == 0 {
		return fmt.Errorf("%s could not be drained within %s: %w", name, bound, err)
	}

	var held []string

	for _, pod := range list.Pods() {
		why, unknown := c.why(ctx, &pod, err)
		if unknown != nil {
			return fmt.Errorf("%s could not be drained within %s: %w", name, bound, err)
		}

		held = append(held, fmt.Sprintf("pod %s/%s %s", pod.Namespace, pod.Name, why))
	}

	return fmt.Errorf("%s could not be drained within %s: %s", name, bound, strings.Join(held, "; "))
}

// why a pod is still there, after its eviction has ended with an error.
func (c *Client) why(ctx context.Context, pod *corev1.Pod, evicted error) (string, error) {
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
			return fmt.Sprintf("is blocked by the disruption budget %s (%d healthy, %d "+
				"required)", b.Name, b.Status.CurrentHealthy,
				b.Status.DesiredHealthy), nil
		}
	}

	return "is not evicted" + denial(pod, evicted), nil
}

// denial is why the API server has refused the eviction of a pod, by a webhook for example; empty where it has not.
func denial(pod *corev1.Pod, evicted error) string {
	all := []error{evicted}

	var several utilerrors.Aggregate
	if errors.As(evicted, &several) {
		all = several.Errors()
	}

	// This is how the library writes them.
	prefix := fmt.Sprintf("error when evicting pods/%q -n %q: ", pod.Name, pod.Namespace)

	for _, err := range all {
		why, its := strings.CutPrefix(err.Error(), prefix)
		if its && !strings.HasPrefix(why, "global timeout reached") {
			return ": " + terminal.Plain(why)
		}
	}

	return ""
}
