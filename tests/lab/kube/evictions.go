package kube

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The subresource by which pods are evicted, and what is posted to it.
const (
	evictionResource = "eviction"
	evictionKind     = "Eviction"
)

// eviction is the kind of what is posted; it is not stored.
var eviction = &kind{group: "policy", version: "v1", resource: "evictions", name: evictionKind, namespaced: true}

// evict serves the subresource (Kubernetes: pkg/registry/core/pod/storage/eviction.go).
func (s *Server) evict(w http.ResponseWriter, r *http.Request, t target, who user) {
	if r.Method != http.MethodPost {
		writeError(w, apierrors.NewMethodNotSupported(pods.gr(), r.Method))
		return
	}

	obj, _, err := readObject(r, eviction)
	if err != nil {
		writeError(w, err)
		return
	}

	e := obj.(*policyv1.Eviction)
	if e.Name != t.name {
		writeError(w, apierrors.NewBadRequest("name in URL does not match name in Eviction object"))
		return
	}

	if err := s.nodeEvicts(who, t); err != nil {
		writeError(w, err)
		return
	}

	if err := s.cfg.Cluster.evict(t.namespace, t.name, e.DeleteOptions,
		dryRun(r) || e.DeleteOptions != nil && len(e.DeleteOptions.DryRun) > 0); err != nil {
		writeError(w, err)
		return
	}

	writeJSON(w, http.StatusCreated, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	})
}

// evict deletes a pod if the disruption budgets let it go.
func (c *Cluster) evict(namespace, name string, options *metav1.DeleteOptions, dry bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	obj, ok := c.objects[pods][key(namespace, name)]
	if !ok {
		return apierrors.NewNotFound(pods.gr(), name)
	}

	p := obj.(*corev1.Pod)

	if !completed(p) && p.Status.Phase != corev1.PodPending && p.DeletionTimestamp.IsZero() {
		if err := c.disrupt(p, dry); err != nil {
			return err
		}
	}

	if dry {
		return nil
	}

	if options != nil && options.Preconditions != nil && options.Preconditions.UID != nil &&
		*options.Preconditions.UID != p.UID {
		return otherUID(pods.name, name, *options.Preconditions.UID, p.UID)
	}

	c.deleteLocked(pods, p)
	c.reconcile()

	return nil
}

// disrupt takes one disruption from the budget of a pod, if it has one.
func (c *Cluster) disrupt(p *corev1.Pod, dry bool) error {
	var found []*policyv1.PodDisruptionBudget

	for _, obj := range c.listLocked(budgets, p.Namespace) {
		b := obj.(*policyv1.PodDisruptionBudget)
		if sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && sel.Matches(labels.Set(p.Labels)) {
			found = append(found, b)
		}
	}

	switch len(found) {
	case 0:
		return nil
	case 1:
	default:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}

	b := found[0]
	st := &b.Status

	if !podReady(p) {
		policy := policyv1.IfHealthyBudget
		if b.Spec.UnhealthyPodEvictionPolicy != nil {
			policy = *b.Spec.UnhealthyPodEvictionPolicy
		}

		if policy == policyv1.AlwaysAllow || st.CurrentHealthy >= st.DesiredHealthy && st.DesiredHealthy > 0 {
			return nil
		}
	}

	if st.DisruptionsAllowed <= 0 {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)

		why := fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
		if st.CurrentHealthy <= st.DesiredHealthy {
			why = fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name,
				st.DesiredHealthy, st.CurrentHealthy)
		}

		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})

		return err
	}

	if !dry {
		st.DisruptionsAllowed--
		c.replace(budgets, b)
	}

	return nil
}
