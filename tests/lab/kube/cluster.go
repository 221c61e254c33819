package kube

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"talos-proxmox/tests/lab/journal"
)

// Cluster is what one cluster's etcd holds: its Kubernetes objects, with their history for watches.
type Cluster struct {
	mu      sync.Mutex
	version uint64
	objects map[*kind]map[string]runtime.Object // by namespace/name
	history []change
	changed chan struct{} // closed and replaced at each change
	signer  *x509.CertificateAuthority
	journal *journal.Journal // takes what the cluster ignores; nil: not recorded
	timed   bool             // pods that take their time are looked at again
}

// change is one entry of the history.
type change struct {
	version uint64
	kind    *kind
	event   watch.EventType
	object  runtime.Object
	before  runtime.Object // nil when the object is new
}

// historyLimit is how many changes a watch can look back; an older one gets 410 Gone, as etcd's compaction does.
const historyLimit = 4096

// NewCluster returns an empty cluster.
func NewCluster() *Cluster {
	return &Cluster{version: 1, objects: map[*kind]map[string]runtime.Object{}, changed: make(chan struct{})}
}

// ignore notes what the cluster does nothing about. The caller holds the lock.
func (c *Cluster) ignore(format string, args ...any) {
	if c.journal != nil {
		c.journal.Ignore(fmt.Sprintf(format, args...))
	}
}

// record tells the cluster which journal its servers have.
func (c *Cluster) record(j *journal.Journal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal = j
}

func key(namespace, name string) string { return namespace + "/" + name }

func accessor(obj runtime.Object) metav1.Object {
	a, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}

	return a
}

// commit records a change. The object must not be shared with anybody who writes to it. The caller holds the lock.
func (c *Cluster) commit(k *kind, event watch.EventType, obj, before runtime.Object) {
	c.version++
	accessor(obj).SetResourceVersion(strconv.FormatUint(c.version, 10))

	if c.objects[k] == nil {
		c.objects[k] = map[string]runtime.Object{}
	}

	id := key(accessor(obj).GetNamespace(), accessor(obj).GetName())
	if event == watch.Deleted {
		delete(c.objects[k], id)
	} else {
		c.objects[k][id] = obj
	}

	c.history = append(c.history, change{version: c.version, kind: k, event: event, object: obj, before: before})
	if len(c.history) > 2*historyLimit {
		c.history = slices.Clone(c.history[len(c.history)-historyLimit:])
	}

	close(c.changed)
	c.changed = make(chan struct{})
}

// get returns a copy of an object.
func (c *Cluster) get(k *kind, namespace, name string) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	obj, ok := c.objects[k][key(namespace, name)]
	if !ok {
		return nil, apierrors.NewNotFound(k.gr(), name)
	}

	return obj.DeepCopyObject(), nil
}

// list returns copies of all objects of a kind, in the order of namespace and name, with the version they were read at.
func (c *Cluster) list(k *kind, namespace string) ([]runtime.Object, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.listLocked(k, namespace), c.version
}

func (c *Cluster) listLocked(k *kind, namespace string) []runtime.Object {
	var out []runtime.Object

	for _, obj := range c.objects[k] {
		if namespace == "" || accessor(obj).GetNamespace() == namespace {
			out = append(out, obj.DeepCopyObject())
		}
	}

	slices.SortFunc(out, func(a, b runtime.Object) int {
		return strings.Compare(
			key(accessor(a).GetNamespace(), accessor(a).GetName()),
			key(accessor(b).GetNamespace(), accessor(b).GetName()),
		)
	})

	return out
}

// create stores a new object and returns a copy of it as stored. A dry run stores nothing.
func (c *Cluster) create(k *kind, obj runtime.Object, dry bool) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if dry {
		return c.newLocked(k, obj)
	}

	stored, err := c.createLocked(k, obj)
	if err != nil {
		return nil, err
	}

	c.reconcile()

	return c.current(k, stored), nil
}

func (c *Cluster) createLocked(k *kind, obj runtime.Object) (runtime.Object, error) {
	obj, err := c.newLocked(k, obj)
	if err == nil {
		c.commit(k, watch.Added, obj, nil)
	}

	return obj, err
}

// newLocked is what would be stored.
func (c *Cluster) newLocked(k *kind, obj runtime.Object) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	m := accessor(obj)

	generateName(m)

	if _, exists := c.objects[k][key(m.GetNamespace(), m.GetName())]; exists {
		return nil, apierrors.NewAlreadyExists(k.gr(), m.GetName())
	}

	if k.namespaced {
		if _, exists := c.objects[kindOf("", "v1", "namespaces")][key("", m.GetNamespace())]; !exists {
			return nil, apierrors.NewNotFound(kindOf("", "v1", "namespaces").gr(), m.GetNamespace())
		}
	}

	m.SetUID(types.UID(newUID()))
	m.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))

	if counted[k] {
		m.SetGeneration(1)
	}

	setDefaults(obj)

	return obj, nil
}

// generateName names an object that wants to have a name of its own.
func generateName(m metav1.Object) {
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(m.GetGenerateName() + randomHex(3)[:5])
	}
}

// current returns a copy of an object as it is now, which controllers may have changed since; of the object itself when
// it is gone again.
func (c *Cluster) current(k *kind, obj runtime.Object) runtime.Object {
	m := accessor(obj)
	if now, ok := c.objects[k][key(m.GetNamespace(), m.GetName())]; ok {
		return now.DeepCopyObject()
	}

	return obj.DeepCopyObject()
}

// update changes one object with a function and returns a copy of the result. The function gets a copy. A dry run
// changes nothing.
func (c *Cluster) update(k *kind, namespace, name string, dry bool,
	change func(runtime.Object) (runtime.Object, error),
) (runtime.Object, error) {
	if dry {
		now, err := c.get(k, namespace, name)
		if err != nil {
			return nil, err
		}

		return change(now)
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	obj, err := c.updateLocked(k, namespace, name, change)
	if err != nil {
		return nil, err
	}

	c.reconcile()

	return c.current(k, obj), nil
}

func (c *Cluster) updateLocked(k *kind, namespace, name string,
	change func(runtime.Object) (runtime.Object, error),
) (runtime.Object, error) {
	before, ok := c.objects[k][key(namespace, name)]
	if !ok {
		return nil, apierrors.NewNotFound(k.gr(), name)
	}

	after, err := change(before.DeepCopyObject())
	if err != nil {
		return nil, err
	}

	was, is := accessor(before), accessor(after)
	if v := is.GetResourceVersion(); v != "" && v != was.GetResourceVersion() {
		return nil, apierrors.NewConflict(k.gr(), name, fmt.Errorf(
			"the object has been modified; please apply your changes to the latest version and try again"))
	}

	// what a client cannot change
	is.SetName(was.GetName())
	is.SetNamespace(was.GetNamespace())
	is.SetUID(was.GetUID())
	is.SetCreationTimestamp(was.GetCreationTimestamp())
	is.SetResourceVersion(was.GetResourceVersion())
	is.SetDeletionTimestamp(was.GetDeletionTimestamp())
	is.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	is.SetGeneration(was.GetGeneration())

	if counted[k] && !equal(specOf(before), specOf(after)) {
		is.SetGeneration(was.GetGeneration() + 1)
	}

	switch {
	case is.GetDeletionTimestamp() != nil && len(is.GetFinalizers()) == 0:
		c.commit(k, watch.Deleted, after, before)
	case equal(before, after):
		return before, nil
	default:
		c.commit(k, watch.Modified, after, before)
	}

	return after, nil
}

// remove deletes an object and returns it.
func (c *Cluster) remove(k *kind, namespace, name string) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	obj, ok := c.objects[k][key(namespace, name)]
	if !ok {
		return nil, apierrors.NewNotFound(k.gr(), name)
	}

	if k == namespaces {
		if slices.Contains([]string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}, name) {
			return nil, apierrors.NewForbidden(k.gr(), name, errors.New("this namespace may not be deleted"))
		}

		c.empty(name)
	}

	gone := c.deleteLocked(k, obj)
	c.reconcile()

	return gone.DeepCopyObject(), nil
}

// deleteLocked deletes an object, or marks it when something has yet to finish with it, and returns it as it is then.
func (c *Cluster) deleteLocked(k *kind, obj runtime.Object) runtime.Object {
	gone := obj.DeepCopyObject()
	m := accessor(gone)

	switch {
	case len(m.GetFinalizers()) == 0 && !c.stays(k, obj):
		c.commit(k, watch.Deleted, gone, obj)
	case m.GetDeletionTimestamp() == nil:
		now, none := metav1.NewTime(time.Now().Truncate(time.Second)), int64(0)
		m.SetDeletionTimestamp(&now)
		m.SetDeletionGracePeriodSeconds(&none)
		c.commit(k, watch.Modified, gone, obj)
	}

	if k == nodes {
		// the lease belongs to the Node and goes with it
		if lease, ok := c.objects[leases][key(corev1.NamespaceNodeLease, m.GetName())]; ok {
			c.commit(leases, watch.Deleted, lease.DeepCopyObject(), lease)
		}
	}

	return gone
}

// stays tells whether an object is a pod whose kubelet is silent: only that could end it. Mirrors of static pods are
// deleted without grace, by the kubelet itself.
func (c *Cluster) stays(k *kind, obj runtime.Object) bool {
	p, ok := obj.(*corev1.Pod)
	if k != pods || !ok || p.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return false
	}

	n, ok := c.objects[nodes][key("", p.Spec.NodeName)].(*corev1.Node)

	return ok && nodeCondition(n) == corev1.ConditionUnknown && len(n.Status.Conditions) > 0
}

// empty deletes what is in a namespace. The caller holds the lock.
func (c *Cluster) empty(namespace string) {
	for i := range kinds {
		if k := &kinds[i]; k.namespaced {
			for _, obj := range c.listLocked(k, namespace) {
				c.commit(k, watch.Deleted, obj, c.objects[k][key(namespace, accessor(obj).GetName())])
			}
		}
	}
}

// since returns the changes of a kind after a version, the version reached, and a channel that is closed at the next
// change. It reports false when the history does not reach back so far.
func (c *Cluster) since(k *kind, version uint64) (changes []change, reached uint64, next <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if version < c.version && (len(c.history) == 0 || c.history[0].version > version+1) {
		return nil, 0, nil, false
	}

	i, _ := slices.BinarySearchFunc(c.history, version+1,
		func(e change, v uint64) int { return int(int64(e.version) - int64(v)) })
	for _, e := range c.history[i:] {
		if e.kind == k {
			changes = append(changes, e)
		}
	}

	return changes, c.version, c.changed, true
}

func newUID() string {
	s := randomHex(16)

	return s[:8] + "-" + s[8:12] + "-4" + s[13:16] + "-a" + s[17:20] + "-" + s[20:]
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails

	return hex.EncodeToString(b)
}
