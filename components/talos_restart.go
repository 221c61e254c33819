package components

import (
	"context"
	"fmt"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
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

// talosRestart is the restart of a node's VM.
type talosRestart struct {
	talosNode

	inside *talosInside
	node   plan.Node
	// before is what ran; empty: it is not known.
	before talosapi.System
}

func (t *talosInside) restart(n plan.Node) rollout.Cluster {
	return &talosRestart{talosNode: talosNode{talosRollout: t.talosRollout}, inside: t, node: n}
}

// Evaluate finds out how the node is.
func (t *talosRestart) Evaluate(ctx context.Context) (_ rollout.Change, err error) {
	if t.changing, err = t.inside.running(ctx, t.node); err != nil {
		return rollout.Change{}, err
	}

	c := t.changing

	if c.Address == "" || !t.inside.member(ctx, c) {
		// No cluster notices that it is gone.
		return rollout.Change{NotJoined: true}, nil
	}

	if err := silence(ctx, c.Target, c.credentials, min(t.plan.SettleTimeout, t.plan.NodeTimeout), t.say); err != nil {
		// It cannot be asked to let its pods go.
		t.say(fmt.Sprintf("%s does not answer (%v): its VM is restarted as it is", c.Name, err))

		return rollout.Change{Effect: lifecycle.Reboot, Unreachable: true}, t.inside.dispensable(ctx, c)
	}

	t.before, err = t.settled(ctx, c)

	return rollout.Change{Effect: lifecycle.Reboot}, err
}

// WaitRejoined waits until the node has booted again and what runs on it is up.
func (t *talosRestart) WaitRejoined(ctx context.Context) error {
	if _, err := t.back(ctx, t.changing, t.before); err != nil {
		return err
	}

	return t.talosNode.WaitRejoined(ctx)
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
	if c.node.Role != spec.RoleControlPlane {
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

// outage is the judgement of a preview.
func (t *talosInside) outage(ctx context.Context, n plan.Node) string {
	ctx, cancel := context.WithTimeout(ctx, wait.Ask)
	defer cancel()

	c, err := t.running(ctx, n)
	if err != nil || n.Role != spec.RoleControlPlane {
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
