package talos

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// A change that a node takes without a reboot may start parts of Kubernetes again: on a control plane the API server,
// controllers and scheduler, and on each node the kubelet. On all nodes at once, that ends all of them for some
// seconds, or for good when none starts with the new settings: the cluster is without its API, or the pods of all
// workers are evicted. So control planes are changed one after the other, of the workers of each pool one before the
// others, and a node that does not serve gets its former configuration back.

// renderTime is how long Talos may take from a new configuration to what follows from it for Kubernetes.
const renderTime = 2 * time.Second

// sendLive gives a node a configuration that it takes without a reboot, and waits until it serves with it.
func (r *Changes) sendLive(ctx context.Context, c nodeChange) error {
	// One that does not serve may be repaired by the change, and keeps no other from being repaired.
	if !r.serves(ctx, c, &watch{}) {
		return r.send(ctx, c)
	}

	// One to which nothing is left to do is no canary.
	if _, settings, err := r.pending(ctx, c); err != nil {
		return err
	} else if len(settings) == 0 {
		return r.send(ctx, c)
	}

	release, err := r.waitTurn(ctx, c)
	if err != nil {
		return err
	}

	err = r.sendWatched(ctx, c)
	release(err)

	return err
}

// waitTurn waits until a node may be changed. Control planes, and the first worker of each pool, are admitted like
// nodes that are taken down; the other workers follow together.
func (r *Changes) waitTurn(ctx context.Context, c nodeChange) (release func(error), err error) {
	done, follows, err := r.canaries.Enter(ctx, c.node, r.rollout.Bound)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}

	if follows {
		if err := r.Limiter.Stopped(); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}

		return func(err error) {
			if err != nil {
				r.Limiter.Stop(c.Name)
			}
		}, nil
	}

	released, err := r.Limiter.Acquire(ctx, c.Name, c.node.Role, r.rollout.Bound, r.Progress)
	if err != nil {
		done()

		return nil, err
	}

	return func(err error) {
		released(err)
		done()
	}, nil
}

// pending is what a node runs, and what of its configuration is still to be changed.
func (r *Changes) pending(ctx context.Context, c nodeChange) (talosapi.System, []impact.Setting, error) {
	now, err := r.waitRunning(ctx, c)
	if err != nil {
		return now, nil, err
	}

	settings, err := impact.Settings(now.Configuration, c.wanted)
	if err != nil {
		return now, nil, fmt.Errorf("%s: %w", c.Name, err)
	}

	return now, settings, nil
}

func (r *Changes) sendWatched(ctx context.Context, c nodeChange) error {
	now, settings, err := r.pending(ctx, c)
	if err != nil {
		return err
	}

	// Without writes, Kubernetes does not keep what the kubelet reports of the change, which may be what repairs etcd.
	watched := len(settings) > 0 && r.etcdTakesWrites(ctx, c)

	if err := r.send(ctx, c); err != nil || !watched {
		return err
	}

	if err = r.waitServing(ctx, c, &watch{wanted: c.wanted, since: time.Now()}); err == nil {
		return nil
	}

	return fmt.Errorf("%s does not serve with its changed configuration: %w; %s; correct what has changed (%s), and run "+
		"'pulumi up' again", c.Name, err, r.revert(ctx, c, now.Configuration), names(settings))
}

// checkServesAsWanted holds that a node serves that has its configuration already: a run that was cut off may have sent
// it.
func (r *Changes) checkServesAsWanted(ctx context.Context, c nodeChange) error {
	// A worker may lack more to be ready than a kubelet.
	w := &watch{wanted: c.wanted, services: c.node.Role != spec.RoleControlPlane}

	if r.serves(ctx, c, w) || !r.etcdTakesWrites(ctx, c) {
		return nil
	}

	if err := r.waitServing(ctx, c, w); err != nil {
		r.Limiter.Stop(c.Name)

		return fmt.Errorf("%s has its configuration, and does not serve with it: %w; correct what was changed last, and run "+
			"'pulumi up' again", c.Name, err)
	}

	return nil
}

func (r *Changes) etcdTakesWrites(ctx context.Context, c nodeChange) bool {
	members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)

	return err == nil && etcd.TakesWrites(members)
}

// names are the paths of settings. Their values may be long.
func names(settings []impact.Setting) string {
	var paths []string

	for _, s := range settings {
		paths = append(paths, s.Path)
	}

	return strings.Join(paths, ", ")
}

// revert gives a node the configuration back that it served with, also when the update is interrupted, and
// says what came of it.
func (r *Changes) revert(ctx context.Context, c nodeChange, former talosconfig.Provider) string {
	text, err := former.Bytes()
	if err == nil {
		err = wait.Until(context.WithoutCancel(ctx), r.Plan.SettleTimeout, r.Progress, func(ctx context.Context) error {
			if err := talosapi.ApplyLive(ctx, c.Target, c.credentials, text); err != nil {
				return wait.For("%s to take its former configuration back (%v)", c.Name, err)
			}

			return nil
		})
	}

	if err != nil {
		return fmt.Sprintf("it still has it (%v), and no further node is changed; to take the change back is not "+
			"enough, for the state does not know of it", err)
	}

	return "it has its former configuration back, and no further node is changed"
}

// replyTime is how long a node that serves may take to say so: a reply may be lost.
const replyTime = 10 * time.Second

// serves says whether a node serves.
func (r *Changes) serves(ctx context.Context, c nodeChange, w *watch) bool {
	return wait.Until(ctx, min(replyTime, r.Plan.SettleTimeout), func(string) {}, func(ctx context.Context) error {
		return r.checkServing(ctx, c, w)
	}) == nil
}

// waitServing waits until the parts of Kubernetes run on a node as it renders them.
func (r *Changes) waitServing(ctx context.Context, c nodeChange, w *watch) error {
	// Each question has its own bound.
	return wait.Until(ctx, r.Plan.ReadyTimeout, r.Progress, func(context.Context) error {
		return r.checkServing(ctx, c, w)
	})
}

// watch is what a node is to serve with, and what was found out of it.
type watch struct {
	// wanted is the configuration that is to be rendered; nil: any.
	wanted talosconfig.Provider
	// services says that Talos' word on its services is enough.
	services bool
	// rendered are the parts of Kubernetes, and since when the node renders them so.
	rendered map[string]talosapi.Rendered
	since    time.Time
	// kube is where a worker was found.
	kube *kubeapi.Client
}

// checkServing says what a node lacks to serve.
func (r *Changes) checkServing(ctx context.Context, c nodeChange, w *watch) error {
	parts, err := talosapi.RenderedParts(ctx, c.Target, c.credentials)
	if err != nil {
		return wait.For("%s: the Talos API (%v)", c.Name, err)
	}

	if w.rendered != nil && !reflect.DeepEqual(w.rendered, parts) {
		w.since = time.Now()
	}

	w.rendered = parts

	if time.Since(w.since) < renderTime {
		return wait.For("%s to render what it runs of Kubernetes", c.Name)
	}

	if w.wanted != nil {
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			if arg := parts[name].MissingArg(name, w.wanted); arg != "" {
				return wait.For("%s to start %s with --%s, which Talos may not let be changed", c.Name, name, arg)
			}
		}
	}

	short, cancel := context.WithTimeout(ctx, 2*wait.RequestTimeout)
	defer cancel()

	controlPlane := c.node.Role == spec.RoleControlPlane

	if err := talosapi.CheckServices(short, c.Target, c.credentials, controlPlane); err != nil {
		return wait.For("%v", err)
	}

	switch {
	case w.services:
		return nil
	case controlPlane:
		return r.checkStaticPods(short, c, parts)
	default:
		return r.checkReported(short, c, w)
	}
}

// checkStaticPods says which part of a control plane does not run as it is rendered. No other node is asked: it may be
// away.
func (r *Changes) checkStaticPods(ctx context.Context, c nodeChange, parts map[string]talosapi.Rendered) error {
	kube, err := cluster.KubernetesOf(ctx, c.Target, c.credentials)
	if err != nil {
		return wait.For("%s: the Kubernetes API server (%v)", c.Name, wait.Reason(err))
	}

	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if name == k8s.KubeletID {
			continue
		}

		if err := kube.CheckStaticPod(ctx, name, c.Name, parts[name].Versions); err != nil {
			return err
		}
	}

	return nil
}

// checkReported holds that the kubelet of a worker has said that the node is ready since it was rendered: Kubernetes
// takes a while until it notices that one is silent.
func (r *Changes) checkReported(ctx context.Context, c nodeChange, w *watch) (err error) {
	if w.kube == nil {
		if w.kube, err = cluster.Kubernetes(ctx, r.others(c), c.credentials); err != nil {
			return wait.For("%v", err)
		}
	}

	n, there, err := w.kube.Node(ctx, c.Name)

	switch {
	case err != nil:
		w.kube = nil

		return wait.For("%s to be ready in Kubernetes (%v)", c.Name, wait.Reason(err))
	case !there || !n.Ready || n.Reported.Before(w.rendered[k8s.KubeletID].Changed.Truncate(time.Second)):
		return wait.For("%s to be ready in Kubernetes", c.Name)
	default:
		return nil
	}
}
