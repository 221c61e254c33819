package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/tests/lab/journal"
)

// podRunner is what a kubelet does with the pods that are bound to its node: it says that they run, with its own
// credentials, and ends those that are deleted. Containers do nothing; those of pods that are not to be started again do
// their work at once and end.
type podRunner struct {
	api   kubernetes.Interface
	node  *corev1.Node
	ready func() bool
	// with has a client of the same server that authenticates with a token, and what ends it.
	with    func(token string) (kubernetes.Interface, func(), error)
	journal *journal.Journal
}

var errNotJoined = errors.New("the machine has not joined yet")

// RunPods runs the pods of the node until the context ends or an API server does not answer any more. Ready tells
// whether the node has a network.
func (k *Kubelet) RunPods(ctx context.Context, ready func() bool) error {
	errs := []error{errNoServer}

	if k.Certificate == nil {
		return errNotJoined
	}

	for _, server := range k.Servers {
		err := k.with(ctx, server, func(ctx context.Context, api kubernetes.Interface) error {
			node, err := api.CoreV1().Nodes().Get(ctx, k.Node.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}

			node.Status.Addresses = k.Node.Status.Addresses

			with := func(token string) (kubernetes.Interface, func(), error) { return k.client(server, token, nil) }

			return (&podRunner{api: api, node: node, ready: ready, with: with, journal: k.Journal}).run(ctx)
		})
		if err == nil {
			return nil
		}

		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}

	return errors.Join(errs...)
}

// How long a watch of pods lasts, and how often pods that wait for something are looked at.
const (
	podWatch  = int64(8)
	podPeriod = 250 * time.Millisecond
)

func (r *podRunner) run(ctx context.Context) error {
	mine := "spec.nodeName=" + r.node.Name

	for ctx.Err() == nil {
		list, err := r.api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: mine})
		if err != nil {
			return err
		}

		if r.node.Spec.PodCIDR == "" {
			// a controller gives it to the node some time
			if now, err := r.api.CoreV1().Nodes().Get(ctx, r.node.Name, metav1.GetOptions{}); err == nil {
				r.node.Spec.PodCIDR = now.Spec.PodCIDR
			}
		}

		r.node.Status.Conditions = conditions(r.ready(), "", nil)

		var waits bool

		for i := range list.Items {
			waiting, err := r.step(ctx, &list.Items[i], list.Items)
			if err != nil {
				return err
			}

			waits = waits || waiting
		}

		seconds := podWatch

		w, err := r.api.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{
			FieldSelector: mine, ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds,
		})
		if err != nil {
			return err
		}

		var again <-chan time.Time
		if waits {
			again = time.After(podPeriod)
		}

		select {
		case <-w.ResultChan():
		case <-again:
		case <-ctx.Done():
		}

		w.Stop()
	}

	return nil
}

// step goes one step with a pod, and tells whether it waits for something. Another may be faster: then the pod is
// looked at again anyway.
func (r *podRunner) step(ctx context.Context, p *corev1.Pod, all []corev1.Pod) (waits bool, err error) {
	switch {
	case p.DeletionTimestamp != nil:
		return r.end(ctx, p)
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "", completed(p):
		return false, nil
	}

	was := p.DeepCopy()
	r.giveAddress(p, all)

	if p.Spec.HostNetwork || p.Status.PodIP != "" {
		runPod(p, r.node)
	}

	if p.Spec.RestartPolicy != corev1.RestartPolicyAlways && podReady(p) {
		r.work(ctx, p)
	}

	if !equal(was, p) {
		_, err = r.api.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	}

	return !podReady(p) && !completed(p), ignored(err)
}

// work lets a pod do its work, which succeeds or fails.
func (r *podRunner) work(ctx context.Context, p *corev1.Pod) {
	container, problem := p.Spec.Containers[0].Name, ""

	issued, err := token(ctx, r.api, p)
	if err == nil {
		var (
			account kubernetes.Interface
			done    func()
		)

		if account, done, err = r.with(issued); err == nil {
			defer done()

			container, problem = programs{
				helm: apiHelm{ctx: ctx, pod: p, kubelet: r.api, account: account}, ignore: r.ignore,
			}.run(p)
		}
	}

	if err != nil {
		problem = err.Error()
	}

	if problem == "" {
		succeed(p)
	} else {
		waiting(p, container, "CrashLoopBackOff", problem)
	}
}

func (r *podRunner) ignore(format string, args ...any) {
	if r.journal != nil {
		r.journal.Ignore(fmt.Sprintf(format, args...))
	}
}

// ignored is an error that is more than another being faster.
func ignored(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}

	return err
}

// end ends a pod that is being deleted. Its containers end when they are told to, once their hooks have slept, and at
// the end of the grace period at the latest.
func (r *podRunner) end(ctx context.Context, p *corev1.Pod) (waits bool, err error) {
	none, grace := int64(0), time.Duration(0)
	if p.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
	}

	if grace == 0 && len(p.Finalizers) > 0 {
		return false, nil // it has ended, and waits for others
	}

	var sleep time.Duration

	for _, c := range p.Spec.Containers {
		if c.Lifecycle != nil && c.Lifecycle.PreStop != nil && c.Lifecycle.PreStop.Sleep != nil {
			sleep = max(sleep, time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
		}
	}

	if requested := p.DeletionTimestamp.Add(-grace); !completed(p) && time.Since(requested) < min(sleep, grace) {
		return true, nil
	}

	return false, ignored(r.api.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &p.UID},
	}))
}

// giveAddress gives a pod the first free address of the node's subnet, which it keeps.
func (r *podRunner) giveAddress(p *corev1.Pod, all []corev1.Pod) {
	prefix, err := netip.ParsePrefix(r.node.Spec.PodCIDR)
	if err != nil || p.Spec.HostNetwork || p.Status.PodIP != "" || nodeCondition(r.node) != corev1.ConditionTrue {
		return
	}

	for a := prefix.Addr().Next().Next(); prefix.Contains(a); a = a.Next() {
		if !slices.ContainsFunc(all, func(other corev1.Pod) bool { return other.Status.PodIP == a.String() }) {
			p.Status.PodIP = a.String()

			return
		}
	}
}
