package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Entry is one object as etcd stores it.
type Entry struct {
	Key      string // "/registry/pods/default/web"
	Revision uint64 // of its last change
	Value    []byte // JSON, with its kind and version
}

// Dump returns all objects, in the order of their changes, and the revision that the cluster has come to.
func (c *Cluster) Dump() ([]Entry, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []Entry

	for k, objects := range c.objects {
		for id, obj := range objects {
			doc, err := jsonOf(k, obj)
			if err != nil {
				return nil, 0, err
			}

			value, err := json.Marshal(doc)
			if err != nil {
				return nil, 0, err
			}

			revision, err := strconv.ParseUint(accessor(obj).GetResourceVersion(), 10, 64)
			if err != nil {
				return nil, 0, err
			}

			out = append(out, Entry{Key: registryKey(k, id), Revision: revision, Value: value})
		}
	}

	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) })

	return out, c.version, nil
}

func registryKey(k *kind, id string) string {
	resource := k.resource
	if k.group != "" && strings.Contains(k.group, ".") {
		resource = k.group + "/" + resource
	}

	return "/registry/" + resource + "/" + strings.TrimPrefix(id, "/")
}

// Restore makes a cluster of what was dumped. Its nodes are taken for lost until their kubelets report.
func Restore(entries []Entry, revision uint64) (*Cluster, error) {
	c := NewCluster()
	c.version = revision

	for _, e := range entries {
		obj, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(e.Value, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}

		k := kindOfObject(obj)
		if k == nil {
			return nil, fmt.Errorf("%s: a %s is not stored here", e.Key, gvk)
		}

		if c.objects[k] == nil {
			c.objects[k] = map[string]runtime.Object{}
		}

		if n, ok := obj.(*corev1.Node); ok {
			MarkLost(n)
		}

		m := accessor(obj)
		m.SetResourceVersion(strconv.FormatUint(e.Revision, 10))
		c.objects[k][key(m.GetNamespace(), m.GetName())] = obj
	}

	return c, nil
}

// MarkLost marks a node whose kubelet is silent.
func MarkLost(n *corev1.Node) {
	now := metav1.Now()

	for i := range n.Status.Conditions {
		if cond := &n.Status.Conditions[i]; cond.Status != corev1.ConditionUnknown {
			cond.Status, cond.Reason, cond.Message = corev1.ConditionUnknown, "NodeStatusUnknown",
				"Kubelet stopped posting node status."
			cond.LastTransitionTime = now
		}
	}
}
