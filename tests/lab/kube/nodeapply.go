package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// NodeSpec is what Talos wants of the Node of its machine, once that is registered.
type NodeSpec struct {
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	// Cordoned says that the machine is going down. It is undone by the next boot, and only then if it was the machine
	// that did it.
	Cordoned bool
	// Admin is the certificate that control planes do it with; nil: the kubelet's, as on workers.
	Admin *x509.PEMEncodedCertificateAndKey
}

// Apply brings the Node in line, in one request (Talos: controllers/k8s/node_apply.go).
func (k *Kubelet) Apply(ctx context.Context, spec NodeSpec) error {
	certificate := k.Certificate
	if spec.Admin != nil {
		certificate = spec.Admin
	}

	var errs []error

	for _, server := range k.Servers {
		err := k.as(ctx, certificate, server, func(ctx context.Context, api kubernetes.Interface) error {
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return spec.apply(ctx, api, k.Node.Name) })
		})
		if err == nil {
			return nil
		}

		errs = append(errs, fmt.Errorf("%s: %w", server, err))
	}

	return errors.Join(errs...)
}

func (s NodeSpec) apply(ctx context.Context, api kubernetes.Interface, name string) error {
	now, err := api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}

	want := now.DeepCopy()
	want.Labels, want.Annotations = overlay(want.Labels, nil), overlay(want.Annotations, nil)

	for _, texts := range []struct {
		of, wanted map[string]string
		owned      string
	}{
		{want.Labels, s.Labels, constants.AnnotationOwnedLabels},
		{want.Annotations, s.Annotations, constants.AnnotationOwnedAnnotations},
	} {
		owned := ownedKeys(want, texts.owned)
		applyTexts(texts.of, texts.wanted, owned)
		setOwnedKeys(want, texts.owned, owned)
	}

	owned := ownedKeys(want, constants.AnnotationOwnedTaints)
	want.Spec.Taints = applyTaints(want.Spec.Taints, s.Taints, owned)
	setOwnedKeys(want, constants.AnnotationOwnedTaints, owned)
	s.cordon(want)

	if equal(now, want) {
		return nil
	}

	_, err = api.CoreV1().Nodes().Update(ctx, want, metav1.UpdateOptions{})

	return err
}

// applyTexts brings labels or annotations in line. One that has another value, and that Talos does not own, stays.
func applyTexts(of, wanted map[string]string, owned map[string]bool) {
	for key, value := range wanted {
		if now, there := of[key]; !there || now == value || owned[key] {
			of[key], owned[key] = value, true
		}
	}

	for key := range owned {
		if _, there := wanted[key]; !there {
			delete(of, key)
			delete(owned, key)
		}
	}
}

// applyTaints brings taints in line, likewise.
func applyTaints(now, wanted []corev1.Taint, owned map[string]bool) []corev1.Taint {
	of := func(all []corev1.Taint, key string) int {
		return slices.IndexFunc(all, func(t corev1.Taint) bool { return t.Key == key })
	}

	for _, t := range wanted {
		switch at := of(now, t.Key); {
		case at < 0:
			now = append(now, t)
			owned[t.Key] = true
		case owned[t.Key]:
			now[at].Value, now[at].Effect = t.Value, t.Effect
		case now[at].Value == t.Value && now[at].Effect == t.Effect:
			owned[t.Key] = true
		}
	}

	return slices.DeleteFunc(now, func(t corev1.Taint) bool {
		if !owned[t.Key] || of(wanted, t.Key) >= 0 {
			return false
		}

		delete(owned, t.Key)

		return true
	})
}

func ownedKeys(n *corev1.Node, annotation string) map[string]bool {
	var keys []string

	_ = json.Unmarshal([]byte(n.Annotations[annotation]), &keys) // without it, none are

	owned := map[string]bool{}
	for _, key := range keys {
		owned[key] = true
	}

	return owned
}

func setOwnedKeys(n *corev1.Node, annotation string, owned map[string]bool) {
	if len(owned) == 0 {
		delete(n.Annotations, annotation)

		return
	}

	text, _ := json.Marshal(slices.Sorted(maps.Keys(owned))) // texts always can be

	n.Annotations[annotation] = string(text)
}

// cordon brings a Node in line with whether the machine is going down.
func (s NodeSpec) cordon(n *corev1.Node) {
	_, ours := n.Annotations[constants.AnnotationCordonedKey]

	switch {
	case s.Cordoned && !n.Spec.Unschedulable:
		n.Spec.Unschedulable = true
		n.Annotations[constants.AnnotationCordonedKey] = constants.AnnotationCordonedValue
	case !s.Cordoned && n.Spec.Unschedulable && ours:
		n.Spec.Unschedulable = false
		delete(n.Annotations, constants.AnnotationCordonedKey)
	}
}
