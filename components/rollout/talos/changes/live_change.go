package changes

import (
	"context"
	"fmt"
	"strings"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// A change that a node takes without a reboot may start parts of Kubernetes again: on a control plane the API server,
// controllers and scheduler, and on each node the kubelet. On all nodes at once, that ends all of them for some
// seconds, or for good when none starts with the new settings: the cluster is without its API, or the pods of all
// workers are evicted. So control planes are changed one after the other, of the workers of each pool one before the
// others, and a node that does not serve gets its former configuration back.

// sendInTurn gives a node that serves a configuration that it takes without a reboot, and waits until it serves with
// it.
func (r *Changes) sendInTurn(ctx context.Context, c nodeChange) error {
	release, err := r.waitTurn(ctx, c)
	if err != nil {
		return err
	}

	err = r.sendAndWatch(ctx, c)
	release(err)

	return err
}

// waitTurn waits until a node may be changed. Control planes, and the first worker of each pool, are admitted like
// nodes that are taken down; the other workers follow together.
func (r *Changes) waitTurn(ctx context.Context, c nodeChange) (release func(error), err error) {
	canaryDone, follows, err := r.canaries.WaitTurn(ctx, c.node, r.rollout.TurnTimeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}

	if follows {
		if err := r.Limiter.CheckNoneFailed(); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}

		return func(err error) {
			if err != nil {
				r.Limiter.Fail(c.Name)
			}
		}, nil
	}

	releaseLimiter, err := r.Limiter.Acquire(ctx, c.Name, c.node.Role, r.rollout.TurnTimeout, r.Progress)
	if err != nil {
		canaryDone()

		return nil, err
	}

	return func(err error) {
		releaseLimiter(err)
		canaryDone()
	}, nil
}

func (r *Changes) sendAndWatch(ctx context.Context, c nodeChange) error {
	now, settings, err := r.pendingSettings(ctx, c)
	if err != nil {
		return err
	}

	// Without writes, Kubernetes does not keep what the kubelet reports of the change, which may be what repairs etcd.
	watched := len(settings) > 0 && r.etcdTakesWrites(ctx, c)

	if err := r.sendConfiguration(ctx, c); err != nil || !watched {
		return err
	}

	watch := r.healthWatch(c)
	watch.Wanted, watch.Since = c.wanted, time.Now()

	if err = watch.WaitServing(ctx); err == nil {
		return nil
	}

	return fmt.Errorf("%s does not serve with its changed configuration: %w; %s; correct what has changed (%s), and run "+
		"'pulumi up' again", c.Name, err, r.revert(ctx, c, now.Configuration), settingPaths(settings))
}

// checkServesAsWanted checks that a node serves that has its configuration already: a run that was cut off may have
// sent it.
func (r *Changes) checkServesAsWanted(ctx context.Context, c nodeChange) error {
	watch := r.healthWatch(c)
	// A worker may lack more to be ready than a kubelet.
	watch.Wanted, watch.ServicesSuffice = c.wanted, c.node.Role != spec.RoleControlPlane

	if watch.Serves(ctx) || !r.etcdTakesWrites(ctx, c) {
		return nil
	}

	if err := watch.WaitServing(ctx); err != nil {
		r.Limiter.Fail(c.Name)

		return fmt.Errorf("%s has its new configuration, but does not serve with it: %w; correct what was changed "+
			"last, and run "+
			"'pulumi up' again", c.Name, err)
	}

	return nil
}

func (r *Changes) etcdTakesWrites(ctx context.Context, c nodeChange) bool {
	members, err := talosapi.EtcdMembers(ctx, r.peersOf(c), c.credentials)

	return err == nil && etcd.TakesWrites(members)
}

// settingPaths are the paths of settings. Their values may be long.
func settingPaths(settings []impact.Setting) string {
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
				return wait.For("%s to return to its former configuration (%v)", c.Name, err)
			}

			return nil
		})
	}

	if err != nil {
		return fmt.Sprintf("it still has the changed configuration (%v), and no further node is changed; reverting "+
			"the change in the stack is not enough, because the state does not contain it", err)
	}

	return "its former configuration was restored, and no further node is changed"
}
