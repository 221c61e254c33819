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
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%s: interrupted while it waited for its turn: %w", c.Name, context.Cause(ctx))
	}

	if err := r.Limiter.Stopped(); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}

	now, err := talosapi.Ask(ctx, c.Target, c.credentials)
	if err != nil {
		return fmt.Errorf("%s does not answer: %w", c.Name, err)
	}

	settings, err := impact.Settings(now.Configuration, c.wanted)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}

	// What does not work now may be repaired by the change, and tells nothing of it.
	served := r.checkServing(ctx, c, &rendered{}) == nil && r.etcdWell(ctx, c)

	if err := r.send(ctx, c); err != nil || !served || !slices.ContainsFunc(settings, ofKubernetes) {
		return err
	}

	if err = r.waitServing(ctx, c); err == nil {
		return nil
	}

	r.Limiter.Stop(c.Name)

	if ctx.Err() != nil {
		return fmt.Errorf("%s: its configuration is changed: %w", c.Name, err)
	}

	return fmt.Errorf("%s does not serve with its changed configuration: %w; %s; correct what has changed (%s), and run "+
		"'pulumi up' again", c.Name, err, r.revert(ctx, c, now.Configuration), names(settings))
}

// etcdWell says that nothing is wrong with any member of etcd. Without, Kubernetes may not keep what kubelets report.
func (r *Changes) etcdWell(ctx context.Context, c nodeChange) bool {
	members, err := talosapi.EtcdMembers(ctx, r.others(c), c.credentials)

	return err == nil && !slices.ContainsFunc(members, func(m etcd.Member) bool { return m.Problem != "" })
}

// ofKubernetes says whether a setting is one of the cluster, not of the machine.
func ofKubernetes(s impact.Setting) bool {
	return strings.HasPrefix(s.Path, "cluster.") || strings.HasPrefix(s.Path, "Kube")
}

// names are the paths of settings. Their values may be long.
func names(settings []impact.Setting) string {
	var paths []string

	for _, s := range settings {
		paths = append(paths, s.Path)
	}

	return strings.Join(paths, ", ")
}

// revert gives a control plane the configuration back that it served with, and says what came of it.
func (r *Changes) revert(ctx context.Context, c nodeChange, former talosconfig.Provider) string {
	text, err := former.Bytes()
	if err == nil {
		err = talosapi.ApplyLive(ctx, c.Target, c.credentials, text)
	}

	if err != nil {
		return fmt.Sprintf("it could not be given its former configuration back (%v), and no other control plane is changed",
			err)
	}

	return "it has its former configuration back, and no other control plane is changed"
}

// waitServing waits until the parts of the control plane run on a node as it renders them.
func (r *Changes) waitServing(ctx context.Context, c nodeChange) error {
	seen := &rendered{since: time.Now()}

	return wait.Until(ctx, r.Plan.ReadyTimeout, r.Progress, func(ctx context.Context) error {
		return r.checkServing(ctx, c, seen)
	})
}

// rendered are the static pods of a node, and since when it renders them so.
type rendered struct {
	pods  map[string]map[string]string
	since time.Time
}

// checkServing says what a control plane lacks to serve.
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

	// Another control plane is asked first: its own API server may be what restarts.
	kube, err := kubernetes(ctx, r.others(c), c.credentials)
	if err != nil {
		return wait.For("%v", err)
	}

	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if err := kube.CheckStaticPod(ctx, name, c.Name, pods[name]); err != nil {
			return err
		}
	}

	if err := talosapi.CheckServices(ctx, c.Target, c.credentials, true); err != nil {
		return wait.For("%v", err)
	}

	return nil
}
