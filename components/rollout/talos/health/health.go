// Package health says whether a node serves: whether the parts of Kubernetes run on it as it renders them.
package health

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// Watch is a node, what it is to serve with, and what was found out of it.
type Watch struct {
	talosapi.Target

	Cluster     *cluster.Cluster
	Role        spec.Role
	Credentials talosapi.Credentials
	// Wanted is the configuration that is to be rendered; nil: any.
	Wanted talosconfig.Provider
	// ServicesSuffice says that Talos' word on its services is enough.
	ServicesSuffice bool
	// Since is when the node has begun to render what it renders now: of a change, the time when it was sent.
	Since time.Time

	// rendered are the parts of Kubernetes as the node renders them.
	rendered map[string]talosapi.Rendered
	// kube is where a worker was found.
	kube *kubeapi.Client
}

// renderTime is how long Talos may take from a new configuration to what follows from it for Kubernetes.
const renderTime = 2 * time.Second

// replyTime is how long a node that serves may take to say so: a reply may be lost.
const replyTime = 10 * time.Second

// Serves says whether the node serves.
func (w *Watch) Serves(ctx context.Context) bool {
	bound := min(replyTime, w.Cluster.Plan.SettleTimeout)

	return wait.Until(ctx, bound, func(string) {}, w.check) == nil
}

// WaitServing waits until the parts of Kubernetes run on the node as it renders them.
func (w *Watch) WaitServing(ctx context.Context) error {
	// Each question has its own bound.
	return wait.Until(ctx, w.Cluster.Plan.ReadyTimeout, w.Cluster.Progress, func(context.Context) error {
		return w.check(ctx)
	})
}

// check says what the node lacks to serve.
func (w *Watch) check(ctx context.Context) error {
	parts, err := talosapi.RenderedParts(ctx, w.Target, w.Credentials)
	if err != nil {
		return wait.For("%s: the Talos API (%v)", w.Name, err)
	}

	if w.rendered != nil && !reflect.DeepEqual(w.rendered, parts) {
		w.Since = time.Now()
	}

	w.rendered = parts

	if time.Since(w.Since) < renderTime {
		return wait.For("%s to render its Kubernetes components", w.Name)
	}

	if w.Wanted != nil {
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if arg := parts[name].MissingArg(name, w.Wanted); arg != "" {
				return wait.For("%s to start %s with --%s, which Talos may not allow to be changed", w.Name, name, arg)
			}
		}
	}

	short, cancel := context.WithTimeout(ctx, 2*wait.RequestTimeout)
	defer cancel()

	controlPlane := w.Role == spec.RoleControlPlane

	if err := talosapi.CheckServices(short, w.Target, w.Credentials, controlPlane); err != nil {
		return wait.For("%v", err)
	}

	switch {
	case w.ServicesSuffice:
		return nil
	case controlPlane:
		return w.checkStaticPods(short)
	default:
		return w.checkReported(short)
	}
}

// checkStaticPods says which part of a control plane does not run as it is rendered. No other node is asked: it may be
// unavailable.
func (w *Watch) checkStaticPods(ctx context.Context) error {
	kube, err := cluster.KubernetesOf(ctx, w.Target, w.Credentials)
	if err != nil {
		return wait.For("%s: the Kubernetes API server (%v)", w.Name, wait.Reason(err))
	}

	for _, name := range slices.Sorted(maps.Keys(w.rendered)) {
		if name == k8s.KubeletID {
			continue
		}

		if err := kube.CheckStaticPod(ctx, name, w.Name, w.rendered[name].Versions); err != nil {
			return err
		}
	}

	return nil
}

// checkReported checks that the kubelet of a worker has said that the node is ready since it was rendered: Kubernetes
// takes a while until it notices that one is silent.
func (w *Watch) checkReported(ctx context.Context) (err error) {
	if w.kube == nil {
		if w.kube, err = cluster.Kubernetes(ctx, w.Cluster.Peers(w.Target, w.Role), w.Credentials); err != nil {
			return wait.For("%v", err)
		}
	}

	n, there, err := w.kube.Node(ctx, w.Name)

	switch {
	case err != nil:
		w.kube = nil

		return wait.For("%s to be ready in Kubernetes (%v)", w.Name, wait.Reason(err))
	case !there || !n.Ready || n.Reported.Before(w.rendered[k8s.KubeletID].Changed.Truncate(time.Second)):
		return wait.For("%s to be ready in Kubernetes", w.Name)
	default:
		return nil
	}
}
