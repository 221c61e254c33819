package kubeapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/components/terminal"
	"talos-proxmox/components/wait"
)

// manifestManager owns the fields that Apply states. It is another than that of the jobs of addons: what a manager
// leaves out of an object that it has applied is taken away.
const manifestManager = "talos-proxmox-manifests"

// Manifest is an object that Apply applies.
type Manifest struct {
	*unstructured.Unstructured

	// Secret says that no message may tell what it holds.
	Secret bool
}

// Apply applies manifests by server-side apply, in their order, within the bound. What cannot be applied yet is tried
// again: its kind or its namespace may come. A field that another manager has set to another value stays as it is, and
// is an error.
func (c *Client) Apply(ctx context.Context, all []Manifest, bound time.Duration, progress wait.Reporter) error {
	// A round may take longer than one question: each request has a bound of its own.
	bounded, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	resources, err := c.resources()
	if err != nil {
		return err
	}

	return wait.Until(ctx, bound, progress, func(context.Context) error {
		var (
			left             []Manifest
			missing, refused []error
		)

		for _, m := range all {
			switch path, err := resources.apply(bounded, m); {
			case err == nil:
			case mayPass(err):
				left, missing = append(left, m), append(missing, m.errorOf(path, err))
			default:
				refused = append(refused, m.errorOf(path, err))
			}
		}

		if refused != nil || missing == nil {
			return errors.Join(refused...)
		}

		all = left
		resources.mapper.Reset()

		return wait.For("Kubernetes to take %d manifests, the first of them %v", len(missing), missing[0])
	})
}

func (r resources) apply(ctx context.Context, m Manifest) (path string, err error) {
	to, path, err := r.of(m.Unstructured)
	if err == nil {
		_, err = to.Apply(ctx, m.GetName(), m.desired(), metav1.ApplyOptions{FieldManager: manifestManager})
	}

	return path, err
}

// stated is what the manifest says of the object, without what only the API server writes.
func (m Manifest) desired() *unstructured.Unstructured {
	object := m.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}

	unstructured.RemoveNestedField(object.Object, "status")

	if object.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Secret") {
		return object
	}

	// The API server merges stringData over data, whoever owns that.
	texts, _, _ := unstructured.NestedStringMap(object.Object, "stringData")
	unstructured.RemoveNestedField(object.Object, "stringData")

	for key, text := range texts {
		_ = unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString([]byte(text)), "data", key)
	}

	return object
}

// errorOf is an error of the manifest. The API server quotes values, but names the fields alone that others own.
func (m Manifest) errorOf(path string, err error) error {
	var status apierrors.APIStatus
	if m.Secret && errors.As(err, &status) && !apierrors.IsConflict(err) {
		return fmt.Errorf("%s: the API server refuses it, with the status %s", path,
			strings.TrimSpace(fmt.Sprintf("%d %s", status.Status().Code, status.Status().Reason)))
	}

	return fmt.Errorf("%s: %w", path, terminal.Error(err))
}

// mayPass says that the same request may succeed later.
func mayPass(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // the kind is not there, or no answer came
	}

	// An internal error is one of a webhook that did not answer. What fits no schema has the status 500, and no reason.
	return apierrors.IsNotFound(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsUnauthorized(err) ||
		apierrors.ReasonForError(err) == metav1.StatusReasonInternalError
}
