package kubeapi

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"talos-proxmox/components/wait"
)

// Sync makes what there is what the manifests say, as talosctl upgrade-k8s does: what is missing is made, what differs
// is updated, and nothing is removed. With an inventory, which Talos keeps from 1.13 on, that is done by server-side
// apply, in Talos' name.
func (c *Client) Sync(ctx context.Context, objects []*unstructured.Unstructured, inventory bool, bound time.Duration,
	progress wait.Reporter,
) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()

	sync := c.update
	if inventory {
		sync = c.apply
	}

	if err := sync(ctx, objects, func(path string) { progress("applying to Kubernetes: " + path) }); err != nil {
		return fmt.Errorf("the manifests that Talos installs in Kubernetes are not up to date: %w", err)
	}

	return nil
}

// update replaces what differs.
func (c *Client) update(ctx context.Context, objects []*unstructured.Unstructured, changed func(path string)) error {
	results, done := make(chan manifests.SyncResult), make(chan error, 1)

	go func() {
		defer close(results)

		done <- manifests.Sync(ctx, objects, rest.CopyConfig(c.config), false, results)
	}()

	for r := range results {
		if !r.Skipped {
			changed(r.Path)
		}
	}

	return <-done
}

// owningInventory is the annotation by which Talos knows the objects of its inventory. Replacing an object would take
// it away. The inventory itself is Talos' to write: it adds what it finds.
const owningInventory = "config.k8s.io/owning-inventory"

// apply applies objects by server-side apply in Talos' name.
func (c *Client) apply(ctx context.Context, objects []*unstructured.Unstructured, changed func(path string)) error {
	resources, err := c.resources()
	if err != nil {
		return err
	}

	for _, object := range objects {
		to, path, err := resources.of(object)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}

		applied, err := applyOne(ctx, to, object)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}

		if applied {
			changed(path)
		}
	}

	return nil
}

// resources find where objects belong.
type resources struct {
	api    dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func (c *Client) resources() (resources, error) {
	api, err := dynamic.NewForConfig(c.config)

	return resources{
		api, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.api.Discovery())),
	}, err
}

// of is where an object belongs, and what it is called.
func (r resources) of(object *unstructured.Unstructured) (to dynamic.ResourceInterface, path string, err error) {
	gvk := object.GroupVersionKind()
	path = gvk.Kind + " " + object.GetName()

	found, err := r.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, path, err
	}

	kind := r.api.Resource(found.Resource)
	if found.Scope.Name() != meta.RESTScopeNameNamespace {
		return kind, path, nil
	}

	namespace := cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)

	return kind.Namespace(namespace), gvk.Kind + " " + namespace + "/" + object.GetName(), nil
}

// applyOne applies an object, unless it belongs to another inventory. It reports whether that has changed it.
func applyOne(ctx context.Context, to dynamic.ResourceInterface, object *unstructured.Unstructured) (bool, error) {
	const inventory = constants.KubernetesBootstrapManifestsInventoryName

	var version string

	now, err := to.Get(ctx, object.GetName(), metav1.GetOptions{})

	switch {
	case err == nil:
		if owner := now.GetAnnotations()[owningInventory]; owner != "" && owner != inventory {
			return false, fmt.Errorf("it belongs to the inventory %s, not to Talos' (annotation %s)", owner, owningInventory)
		}

		version = now.GetResourceVersion()
	case !apierrors.IsNotFound(err):
		return false, err
	}

	object = object.DeepCopy()

	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations[owningInventory] = inventory
	object.SetAnnotations(annotations)

	applied, err := to.Apply(ctx, object.GetName(), object,
		metav1.ApplyOptions{FieldManager: constants.KubernetesFieldManagerName, Force: true})
	if err != nil {
		return false, err
	}

	return applied.GetResourceVersion() != version, nil
}
