package kube

import (
	"maps"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The inventory of what Talos 1.13 and later have installed is a ConfigMap. What it has is never installed again, also
// when it is deleted (Talos: controllers/k8s/manifest_apply.go).
const (
	InventoryNamespace = constants.KubernetesInventoryNamespace
	InventoryName      = constants.KubernetesBootstrapManifestsInventoryName
	// InventoryAnnotation names the inventory on objects that Talos has created.
	InventoryAnnotation = "config.k8s.io/owning-inventory"
)

// InventoryKey is what the inventory calls an object.
func InventoryKey(gk schema.GroupKind, namespace, name string) string {
	return strings.Join([]string{namespace, strings.ReplaceAll(name, ":", "__"), gk.Group, gk.Kind}, "_")
}

// Owned marks an object as one of the inventory.
func Owned(obj metav1.Object) {
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations[InventoryAnnotation] = InventoryName
	obj.SetAnnotations(annotations)
}

// installLocked creates what is missing of the manifests. With an inventory, what is in that is left out.
func (c *Cluster) installLocked(m Manifests) error {
	was, known := c.inventoryLocked(), map[string]string{}
	if was != nil {
		maps.Copy(known, was.Data)
	}

	for _, obj := range m.Installed() {
		k := kindOfObject(obj)
		if k == nil {
			c.ignore("a manifest of a kind that the lab does not store: %T", obj)

			continue // an inline manifest of a kind that is not stored
		}

		o := accessor(obj)
		if k.namespaced && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}

		id := InventoryKey(k.gvk().GroupKind(), o.GetNamespace(), o.GetName())

		if _, there := known[id]; there && m.Inventory {
			continue
		}

		if m.Inventory {
			Owned(o)
		}

		if err := c.createMissingLocked(k, obj); err != nil {
			return err
		}

		known[id] = ""
	}

	if !m.Inventory || was != nil && maps.Equal(was.Data, known) {
		return nil
	}

	now := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: InventoryName, Namespace: InventoryNamespace}, Data: known}

	if was == nil {
		_, err := c.createLocked(configMaps, now)

		return err
	}

	_, err := c.updateLocked(configMaps, InventoryNamespace, InventoryName,
		func(obj runtime.Object) (runtime.Object, error) {
			obj.(*corev1.ConfigMap).Data = known

			return obj, nil
		})

	return err
}

// createMissingLocked creates an object unless it is there.
func (c *Cluster) createMissingLocked(k *kind, obj runtime.Object) error {
	if _, exists := c.objects[k][key(accessor(obj).GetNamespace(), accessor(obj).GetName())]; exists {
		return nil
	}

	_, err := c.createLocked(k, obj)

	return err
}

// inventoryLocked is the inventory, nil when there is none.
func (c *Cluster) inventoryLocked() *corev1.ConfigMap {
	found, _ := c.objects[configMaps][key(InventoryNamespace, InventoryName)].(*corev1.ConfigMap)

	return found
}
