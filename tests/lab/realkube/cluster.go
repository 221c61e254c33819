// Package realkube is the Kubernetes of a cluster whose control plane is the released one: an API server on each
// control plane of the lab, at the member of etcd there, and the controllers and the scheduler once. Nodes are the
// lab's: see [kube.Kubelet].
package realkube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/upstream"
)

// Config is what a cluster is made from.
type Config struct {
	Binary *upstream.Binary
	// Dir has the files of what runs.
	Dir string
	// PKI is that of the cluster's configuration.
	PKI upstream.PKI
	// Services and Pods are the networks of the cluster, as the flags of Kubernetes have them.
	Services, Pods string
	// Issuer is that of the tokens of service accounts.
	Issuer string
	// Recovered says that etcd comes from a snapshot: its nodes are taken for lost until their kubelets report.
	Recovered bool
	// Log receives what goes wrong.
	Log func(format string, args ...any)
}

// Cluster is the Kubernetes of one cluster of etcd.
type Cluster struct {
	c Config

	applying    sync.Mutex // one installs manifests at a time
	mu          sync.Mutex
	servers     []*Server // that run
	recovered   bool      // the nodes of the snapshot were marked, or there was none
	controlled  *Server   // at which the controllers run
	controllers []*upstream.Process
	unwatch     context.CancelFunc
	nodes       map[types.UID]*corev1.Node // as they were told last
	pods        map[types.UID]*corev1.Pod
	lost        map[string]time.Time // nodes that are to be marked
	changed     chan struct{}        // closed at the next change of a node or a pod
	addresses   []string             // of the API servers
	port        int32
}

// New is a cluster of which nothing runs yet.
func New(c Config) *Cluster {
	return &Cluster{c: c, recovered: !c.Recovered, lost: map[string]time.Time{}, changed: make(chan struct{})}
}

// Server is an API server that runs.
type Server struct {
	*upstream.APIServer

	cluster *Cluster
	admin   *rest.Config
	client  *kubernetes.Clientset
	proxy   *proxy
}

// Machine is what an API server takes from the machine that it runs on.
type Machine struct {
	// Address is where a member of etcd runs.
	Address string
	// Version is the one that the machine is to run, "v1.34.2"; the released server always has its own.
	Version string
	// Args are further flags, and File what the files that they name hold.
	Args []string
	File func(path string) (text string, there bool)
}

// Serve starts an API server, and returns when it is ready.
func (c *Cluster) Serve(ctx context.Context, m Machine) (*Server, error) {
	wanted, err := version.ParseSemantic(m.Version)
	if err != nil {
		return nil, err
	}

	started, err := c.c.Binary.StartAPIServer(ctx, upstream.APIServerConfig{
		Dir: filepath.Join(c.c.Dir, m.Address), Address: m.Address, PKI: c.c.PKI, Services: c.c.Services, Pods: c.c.Pods,
		Issuer: c.c.Issuer, Args: known(m.Args, c.c.Binary, wanted), File: m.File,
	})
	if err != nil {
		return nil, err
	}

	s := &Server{APIServer: started, cluster: c}

	if err := s.open(ctx); err != nil {
		started.Stop()

		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.servers = append(c.servers, s)
	c.control()

	return s, nil
}

// CheckKubelet is why a kubelet of a version does not start with its flags.
func CheckKubelet(ctx context.Context, b *upstream.Binary, kubelet string, args []string) error {
	wanted, err := version.ParseSemantic(kubelet)
	if err != nil {
		return err
	}

	args = known(args, b, wanted)
	if wanted.LessThan(version.MustParseSemantic("v1.34.0")) {
		args = without(args, "--cloud-config=") // gone in 1.34
	}

	_, err = b.Run(ctx, append([]string{"kubelet"}, args...)...)

	return err
}

// known are flags, for another version than the released one without those whose values come and go with versions.
func known(args []string, b *upstream.Binary, wanted *version.Version) []string {
	if version.MustParseSemantic(b.Version).Minor() == wanted.Minor() {
		return args
	}

	return without(args, "--feature-gates=", "--runtime-config=")
}

func without(args []string, prefixes ...string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(arg, prefix) })
	})
}

// open makes the clients of a server.
func (s *Server) open(ctx context.Context) error {
	var err error
	if s.admin, err = s.Config("lab", "system:masters"); err != nil {
		return err
	}

	if s.client, err = kubernetes.NewForConfig(s.admin); err != nil {
		return err
	}

	if s.proxy, err = newProxy(s.APIServer); err != nil {
		return err
	}

	return s.cluster.markRecovered(ctx, s.client)
}

// markRecovered marks the nodes of a snapshot, once.
func (c *Cluster) markRecovered(ctx context.Context, client kubernetes.Interface) error {
	c.mu.Lock()
	done := c.recovered
	c.mu.Unlock()

	if done {
		return nil
	}

	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}

	for i := range list.Items {
		if err := markLost(ctx, client, &list.Items[i]); err != nil {
			return err
		}
	}

	c.mu.Lock()
	c.recovered = true
	c.mu.Unlock()

	return nil
}

// Stop ends a server as a power failure does.
func (s *Server) Stop() {
	s.proxy.close()
	s.APIServer.Stop()

	c := s.cluster
	c.mu.Lock()
	defer c.mu.Unlock()

	c.servers = slices.DeleteFunc(c.servers, func(other *Server) bool { return other == s })
	c.control()
}

// control has the controllers run at a server that does. The caller holds the lock.
func (c *Cluster) control() {
	if c.controlled != nil && slices.Contains(c.servers, c.controlled) {
		return
	}

	for _, p := range c.controllers {
		p.Stop()
	}

	if c.unwatch != nil {
		c.unwatch()
	}

	c.controllers, c.controlled, c.unwatch = nil, nil, nil

	if len(c.servers) == 0 {
		return
	}

	c.controlled = c.servers[0]

	var err error
	if c.controllers, err = c.c.Binary.StartControllers(c.controlled.APIServer); err != nil {
		c.c.Log("controllers: %v", err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	c.unwatch = cancel

	go c.watch(ctx, c.controlled)
}

// watch keeps what the lab knows of nodes and pods.
func (c *Cluster) watch(ctx context.Context, s *Server) {
	nodes, pods := s.client.CoreV1().Nodes(), s.client.CoreV1().Pods(metav1.NamespaceAll)

	go follow(ctx, c, &c.nodes, func(o metav1.ListOptions) ([]corev1.Node, string, error) {
		list, err := nodes.List(ctx, o)

		return list.Items, list.ResourceVersion, err
	}, func(o metav1.ListOptions) (watch.Interface, error) { return nodes.Watch(ctx, o) })

	follow(ctx, c, &c.pods, func(o metav1.ListOptions) ([]corev1.Pod, string, error) {
		list, err := pods.List(ctx, o)

		return list.Items, list.ResourceVersion, err
	}, func(o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) })
}

// object is one of those that the lab keeps.
type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// follow keeps all objects of a kind, by their identities, until the context ends. What they were last stays.
func follow[T any, P object[T]](ctx context.Context, c *Cluster, kept *map[types.UID]P,
	list func(metav1.ListOptions) ([]T, string, error), open func(metav1.ListOptions) (watch.Interface, error),
) {
	for ; ctx.Err() == nil; wait(ctx, markEvery) {
		all, version, err := list(metav1.ListOptions{})
		if err != nil {
			continue
		}

		found := map[types.UID]P{}

		for i := range all {
			obj := P(&all[i])
			found[obj.GetUID()] = obj
		}

		c.change(func() { *kept = found })

		w, err := open(metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			continue
		}

		for e := range w.ResultChan() {
			obj, ok := e.Object.(P)
			if !ok {
				break // it ends with an error: from the beginning
			}

			c.change(func() {
				if e.Type == watch.Deleted {
					delete(found, obj.GetUID())
				} else {
					found[obj.GetUID()] = obj
				}
			})
		}

		w.Stop()
	}
}

// change changes what the lab knows.
func (c *Cluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()

	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// any is a client of a server that runs, nil without one.
func (c *Cluster) any() *Server {
	c.mu.Lock()
	defer c.mu.Unlock()

	if len(c.servers) == 0 {
		return nil
	}

	return c.servers[0]
}

var errNoServer = errors.New("no API server of the cluster runs")

// applyWithin is how long the manifests of Talos may take.
const applyWithin = time.Minute

// Apply creates what is missing of the manifests and leaves alone what is there. With an inventory, what is in that is
// left out, also when it is gone.
func (c *Cluster) Apply(ctx context.Context, m kube.Manifests) error {
	s := c.any()
	if s == nil {
		return errNoServer
	}

	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()

	// Talos has a lock in etcd.
	c.applying.Lock()
	defer c.applying.Unlock()

	i := installation{known: map[string]string{}, inventory: m.Inventory}

	var err error
	if i.api, err = dynamic.NewForConfig(s.admin); err != nil {
		return err
	}

	if err := i.read(ctx, s.client); err != nil {
		return err
	}

	i.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))

	for _, obj := range m.Installed() {
		tree, err := treeOf(obj)
		if err != nil {
			return err
		}

		if err := i.install(ctx, tree); err != nil {
			return errors.Join(fmt.Errorf("%s %s: %w", tree.GetKind(), tree.GetName(), err), i.write(ctx, s.client))
		}
	}

	return i.write(ctx, s.client)
}

// installation is one round of installing manifests.
type installation struct {
	api       dynamic.Interface
	mapper    meta.RESTMapper
	inventory bool
	known     map[string]string // what is in the inventory
}

// read reads the inventory.
func (i *installation) read(ctx context.Context, client kubernetes.Interface) error {
	if !i.inventory {
		return nil
	}

	found, err := client.CoreV1().ConfigMaps(kube.InventoryNamespace).Get(ctx, kube.InventoryName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err == nil {
		maps.Copy(i.known, found.Data)
	}

	return err
}

// write writes the inventory.
func (i *installation) write(ctx context.Context, client kubernetes.Interface) error {
	if !i.inventory {
		return nil
	}

	inventory := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: kube.InventoryName, Namespace: kube.InventoryNamespace}, Data: i.known,
	}
	all := client.CoreV1().ConfigMaps(kube.InventoryNamespace)

	_, err := all.Update(ctx, inventory, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = all.Create(ctx, inventory, metav1.CreateOptions{})
	}

	return err
}

// install creates an object, unless it is there or in the inventory.
func (i *installation) install(ctx context.Context, tree *unstructured.Unstructured) error {
	gvk := tree.GroupVersionKind()

	found, err := i.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}

	to := dynamic.ResourceInterface(i.api.Resource(found.Resource))

	if found.Scope.Name() == meta.RESTScopeNameNamespace {
		if tree.GetNamespace() == "" {
			tree.SetNamespace(metav1.NamespaceDefault)
		}

		to = i.api.Resource(found.Resource).Namespace(tree.GetNamespace())
	}

	id := kube.InventoryKey(gvk.GroupKind(), tree.GetNamespace(), tree.GetName())
	if _, known := i.known[id]; known {
		return nil
	}

	// An address that is taken is refused before a name.
	if _, err = to.Get(ctx, tree.GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		err = i.create(ctx, to, tree)
	}

	if err == nil {
		i.known[id] = ""
	}

	return err
}

// create creates an object as the version of Talos does.
func (i *installation) create(ctx context.Context, to dynamic.ResourceInterface, tree *unstructured.Unstructured) error {
	if i.inventory {
		kube.Owned(tree)

		_, err := to.Apply(ctx, tree.GetName(), tree, metav1.ApplyOptions{FieldManager: fieldManager})

		return err
	}

	_, err := to.Create(ctx, tree, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}

	return err
}

// fieldManager is what Talos calls itself.
const fieldManager = "talos"

// treeOf is an object with its kind in it.
func treeOf(obj runtime.Object) (*unstructured.Unstructured, error) {
	if tree, ok := obj.(*unstructured.Unstructured); ok {
		return tree.DeepCopy(), nil
	}

	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return nil, err
	}

	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}

	tree := &unstructured.Unstructured{Object: content}
	tree.SetGroupVersionKind(kinds[0])
	unstructured.RemoveNestedField(tree.Object, "status")

	return tree, nil
}
