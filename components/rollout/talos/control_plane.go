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

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// A control plane starts its API server, controllers and scheduler again when their settings or certificates change,
// without a reboot. On all control planes at once, that ends all API servers of the cluster: for some seconds, or for
// good when none starts with the new settings. So control planes are changed one after the other, and one that does not
// serve gets its former configuration back.

// renderTime is how long Talos may take from a new configuration to the static pods that follow from it.
const renderTime = 2 * time.Second

// sendInTurn gives a control plane a configuration that it takes without a reboot, and waits until it serves with it.
func (r *Changes) sendInTurn(ctx context.Context, c nodeChange) error {
	// One that does not serve may be repaired by the change, and keeps no other from being repaired.
	if !r.serves(ctx, c) {
		return r.send(ctx, c)
	}

	release, err := r.Limiter.Acquire(ctx, c.Name, c.node.Role, r.rollout.Bound, r.Progress)
	if err != nil {
		return err
	}

	err = r.sendWatched(ctx, c)
	release(err)

	return err
}

func (r *Changes) sendWatched(ctx context.Context, c nodeChange) error {
	now, err := r.waitRunning(ctx, c)
	if err != nil {
		return err
	}

	settings, err := impact.Settings(now.Configuration, c.wanted)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}

	// Without writes, Kubernetes does not keep what the kubelet reports of the change, which may be what repairs etcd.
	watched := len(settings) > 0 && r.etcdTakesWrites(ctx, c)

	if err := r.send(ctx, c); err != nil || !watched {
		return err
	}

	if err = r.waitServing(ctx, c, &rendered{since: time.Now()}); err == nil {
		return nil
	}

	return fmt.Errorf("%s does not serve with its changed configuration: %w; %s; correct what has changed (%s), and run "+
		"'pulumi up' again", c.Name, err, r.revert(ctx, c, now.Configuration), names(settings))
}

// checkServesAsWanted holds that a control plane serves that has its configuration already: a run that was cut off may
// have sent it.
func (r *Changes) checkServesAsWanted(ctx context.Context, c nodeChange) error {
	if r.serves(ctx, c) || !r.etcdTakesWrites(ctx, c) {
		return nil
	}

	if err := r.waitServing(ctx, c, &rendered{}); err != nil {
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

// revert gives a control plane the configuration back that it served with, also when the update is interrupted, and
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
		return fmt.Sprintf("it still has it (%v), and no further control plane is changed; to take the change back is not "+
			"enough, for the state does not know of it", err)
	}

	return "it has its former configuration back, and no further control plane is changed"
}

// replyTime is how long a control plane that serves may take to say so: a reply may be lost.
const replyTime = 10 * time.Second

// serves says whether a control plane serves.
func (r *Changes) serves(ctx context.Context, c nodeChange) bool {
	return wait.Until(ctx, min(replyTime, r.Plan.SettleTimeout), func(string) {}, func(ctx context.Context) error {
		return r.checkServing(ctx, c, &rendered{})
	}) == nil
}

// waitServing waits until the parts of the control plane run on a node as it renders them.
func (r *Changes) waitServing(ctx context.Context, c nodeChange, seen *rendered) error {
	// Each question has its own bound.
	return wait.Until(ctx, r.Plan.ReadyTimeout, r.Progress, func(context.Context) error {
		return r.checkServing(ctx, c, seen)
	})
}

// rendered are the static pods of a node, and since when it renders them so.
type rendered struct {
	pods  map[string]map[string]string
	since time.Time
}

// checkServing says what a control plane lacks to serve. No other node is asked: it may be away.
func (r *Changes) checkServing(ctx context.Context, c nodeChange, seen *rendered) error {
	pods, err := talosapi.StaticPods(ctx, c.Target, c.credentials)
	if err != nil {
		return wait.For("%s: the Talos API (%v)", c.Name, err)
	}

	if seen.pods != nil && !reflect.DeepEqual(seen.pods, pods) {
		seen.since = time.Now()
	}

	seen.pods = pods

	if time.Since(seen.since) < renderTime {
		return wait.For("%s to render its control plane", c.Name)
	}

	short, cancel := context.WithTimeout(ctx, 2*wait.RequestTimeout)
	defer cancel()

	if err := talosapi.CheckServices(short, c.Target, c.credentials, true); err != nil {
		return wait.For("%v", err)
	}

	kube, err := kubernetesOf(short, c.Target, c.credentials)
	if err != nil {
		return wait.For("%s: the Kubernetes API server (%v)", c.Name, wait.Reason(err))
	}

	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if err := kube.CheckStaticPod(short, name, c.Name, pods[name]); err != nil {
			return err
		}
	}

	return nil
}
