package components

import (
	"context"
	"fmt"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// talosInside is what runs in the VMs of a cluster of Talos.
type talosInside struct {
	*talosRollout

	// credentials are known as soon as the identity of the cluster is.
	credentials *future[talosapi.Credentials]
	// discovery finds the address of a node that is not known yet; nil: all are stated.
	discovery *proxmoxvm.Discovery
}

// vacate makes a node ready for the restart of its VM. Every step may be done already, by a run that was cut off.
func (t *talosInside) vacate(ctx context.Context, n plan.Node) (vacated, error) {
	c, err := t.running(ctx, n)
	if err != nil {
		return vacated{}, err
	}

	if c.Address == "" || !t.member(ctx, c) {
		// There is nobody who could notice.
		return vacated{}, nil
	}

	back := func(before talosapi.System) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, err := t.back(ctx, c, before); err != nil {
				return err
			}

			return t.reopen(ctx, c)
		}
	}

	if err := silence(ctx, c.Target, c.credentials, min(t.plan.SettleTimeout, t.plan.NodeTimeout), t.say); err != nil {
		// It cannot be asked to let its pods go.
		t.say(fmt.Sprintf("%s does not answer (%v): its VM is restarted as it is", c.Name, err))

		return vacated{back: back(talosapi.System{})}, t.dispensable(ctx, c)
	}

	before, err := t.settled(ctx, c)
	if err != nil {
		return vacated{}, err
	}

	kube, err := t.room(ctx, c, lifecycle.Reboot)
	if err != nil {
		return vacated{}, err
	}

	if c.node.Role == plan.ControlPlane {
		if err := t.backup.take(ctx, t.others(c), c.credentials); err != nil {
			return vacated{}, err
		}
	}

	d := rollout.Drain{Kube: kube, Node: c.Name, Bound: t.plan.DrainTimeout, Say: t.say}
	if err := d.Run(ctx); err != nil {
		return vacated{}, err
	}

	if err := t.recheck(ctx, d, c, lifecycle.Reboot); err != nil {
		return vacated{}, err
	}

	return vacated{back: back(before), reopen: func(ctx context.Context) error { return t.uncordon(ctx, c) }}, nil
}

// running is a node as it is addressed now. A hook of its VM sees neither credentials nor addresses.
func (t *talosInside) running(ctx context.Context, n plan.Node) (changing, error) {
	c := changing{node: n, Target: talosapi.Target{Name: n.Name}}

	var known bool
	if c.credentials, known = t.credentials.get(ctx, t.plan.NodeTimeout); !known {
		return c, fmt.Errorf("the credentials of the cluster are not known after %s", t.plan.NodeTimeout)
	}

	t.discovery.Locate(ctx, append(t.plan.ControlPlanes(), n), t.addresses)

	c.Address = t.addresses.Get(n.Name)

	return c, nil
}

// member says whether the node is one of a cluster: it has its configuration, and the cluster has been started.
func (t *talosInside) member(ctx context.Context, c changing) bool {
	return !talosapi.Unconfigured(ctx, c.Target) && talosapi.Founded(ctx, t.others(c), c.credentials)
}

// dispensable holds that etcd does without a control plane that does not answer.
func (t *talosInside) dispensable(ctx context.Context, c changing) error {
	if c.node.Role != plan.ControlPlane {
		return nil
	}

	return rollout.WaitHealthy(ctx, t.plan, t.say, "etcd", func(ctx context.Context) error {
		members, err := talosapi.EtcdMembers(ctx, t.others(c), c.credentials)
		if err != nil {
			// Nobody has a quorum that could be lost.
			return nil //nolint:nilerr // that is what is asked
		}

		return lifecycle.Dispensable(members, c.Name)
	})
}

func (t *talosInside) uncordon(ctx context.Context, c changing) error {
	kube, err := lasting(ctx, t.others(c), c.credentials, t.plan, t.say)
	if err != nil {
		return err
	}

	return kube.Uncordon(ctx, c.Name)
}

// outage is the judgement of a preview.
func (t *talosInside) outage(ctx context.Context, n plan.Node) string {
	ctx, cancel := context.WithTimeout(ctx, wait.Ask)
	defer cancel()

	c, err := t.running(ctx, n)
	if err != nil || n.Role != plan.ControlPlane {
		return ""
	}

	return t.talosRollout.outage(ctx, c, lifecycle.Reboot)
}

// api is the Kubernetes API of any control plane.
func (t *talosInside) api(ctx context.Context) (*kubeapi.Client, error) {
	c, known := t.credentials.get(ctx, t.plan.NodeTimeout)
	if !known {
		return nil, context.Cause(ctx)
	}

	return kubernetes(ctx, controlPlanes(t.plan, t.addresses), c)
}
