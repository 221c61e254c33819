package realkube

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"talos-proxmox/tests/lab/kube"
)

// Nodes returns copies of all nodes, by name.
func (c *Cluster) Nodes() []*corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()

	var all []*corev1.Node
	for _, n := range c.nodes {
		all = append(all, n.DeepCopy())
	}

	slices.SortFunc(all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })

	return all
}

// Node returns a copy of a node, nil when there is none of that name.
func (c *Cluster) Node(name string) *corev1.Node {
	for _, n := range c.Nodes() {
		if n.Name == name {
			return n
		}
	}

	return nil
}

// NodeReady tells whether a node has joined and is Ready.
func (c *Cluster) NodeReady(name string) (joined, ready bool) {
	c.mu.Lock()
	_, lost := c.lost[name]
	c.mu.Unlock()

	n := c.Node(name)

	return n != nil, n != nil && !lost && slices.ContainsFunc(n.Status.Conditions, func(cond corev1.NodeCondition) bool {
		return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
	})
}

// askWithin is how long a question may take that someone waits for.
const askWithin = 2 * time.Second

// HasNode tells whether a node of that name and identity is registered.
func (c *Cluster) HasNode(name string, uid types.UID) bool {
	if n := c.Node(name); n != nil && n.UID == uid {
		return true
	}

	s := c.any()
	if s == nil {
		return false
	}

	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()

	n, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})

	return err == nil && n.UID == uid
}

// Changed is closed at the next change of a node or a pod.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.changed
}

// UpdateNode changes a node and its status as a controller does that runs outside of the controller manager.
func (c *Cluster) UpdateNode(name string, change func(*corev1.Node)) error {
	s := c.any()
	if s == nil {
		return errNoServer
	}

	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()

	nodes := s.client.CoreV1().Nodes()

	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		was, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		now := was.DeepCopy()
		change(now)
		status := now.Status

		if now.Status = was.Status; !equality.Semantic.DeepEqual(was, now) {
			if now, err = nodes.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}

		if equality.Semantic.DeepEqual(was.Status, status) {
			return nil
		}

		now.Status = status
		_, err = nodes.UpdateStatus(ctx, now, metav1.UpdateOptions{})

		return err
	})
}

// RunningOn returns copies of the pods that run on a node.
func (c *Cluster) RunningOn(node string) []*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()

	var out []*corev1.Pod

	for _, p := range c.pods {
		if p.Spec.NodeName == node && kube.PodReady(p) {
			out = append(out, p.DeepCopy())
		}
	}

	return out
}

// NetworkPlugin is the name of what has put a CNI configuration on a node.
func (c *Cluster) NetworkPlugin(node string) string { return kube.NetworkPluginOf(c.RunningOn(node)) }

// SetAPIServers records which addresses serve the API. A real API server takes none of the loopback network.
func (c *Cluster) SetAPIServers(addresses []string, port int32) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.addresses, c.port = slices.Sorted(slices.Values(addresses)), port
}

// How long, and how often, it is tried to mark a node whose cluster has no API server at the moment.
const (
	markWithin = 5 * time.Minute
	markEvery  = 250 * time.Millisecond
)

// NodeLost marks a node whose kubelet has gone silent, as the node lifecycle controller does after its grace period,
// which is nothing here: a lab's machine that is off is known to be off. What follows from it is Kubernetes' own.
func (c *Cluster) NodeLost(name string) {
	since := time.Now()

	c.mu.Lock()
	c.lost[name] = since
	c.mu.Unlock()

	go func() {
		for time.Since(since) < markWithin && !c.mark(name, since) {
			time.Sleep(markEvery)
		}

		c.mu.Lock()
		defer c.mu.Unlock()

		if c.lost[name].Equal(since) {
			delete(c.lost, name)
		}
	}()
}

// NodeReports ends what NodeLost began: the kubelet is about to report. (The times of its reports have no fractions of
// a second, and a node of the lab is back within one.)
func (c *Cluster) NodeReports(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	delete(c.lost, name)
}

// mark marks a node, unless its kubelet reports again. It tells whether there is nothing left to do.
func (c *Cluster) mark(name string, since time.Time) bool {
	s := c.any()
	if s == nil {
		return false
	}

	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()

	n, err := s.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return true
	case err != nil:
		return false
	}

	// A report that comes after this makes another version of the Node, and the update a conflict.
	c.mu.Lock()
	silent := c.lost[name].Equal(since)
	c.mu.Unlock()

	return !silent || markLost(ctx, s.client, n) == nil
}

func markLost(ctx context.Context, client kubernetes.Interface, n *corev1.Node) error {
	kube.MarkLost(n)

	_, err := client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}
