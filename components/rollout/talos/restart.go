package talos

import (
	"context"
	"fmt"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// Restarts are the restarts of VMs; it is the rollout.System of Talos.
type Restarts struct {
	*Changes

	// discovery finds the address of a node that is not known yet; nil: all are stated.
	discovery *proxmoxvm.Discovery
}

// talosRestart is the restart of a node's VM.
type talosRestart struct {
	talosNode

	restarts *Restarts
	node     plan.Node
	// before is what ran before; empty: it is not known.
	before talosapi.System
}

// Restart is the restart of the VM of a node.
func (t *Restarts) Restart(n plan.Node) rollout.Cluster {
	return &talosRestart{talosNode: talosNode{Changes: t.Changes}, restarts: t, node: n}
}

// Evaluate finds out how the node is.
func (t *talosRestart) Evaluate(ctx context.Context) (_ rollout.Change, err error) {
	if t.nodeChange, err = t.restarts.running(ctx, t.node); err != nil {
		return rollout.Change{}, err
	}

	c := t.nodeChange

	if c.Address == "" || !t.restarts.joined(ctx, c) {
		// No cluster notices that it is gone.
		return rollout.Change{NotJoined: true}, nil
	}

	if err := t.whyUnreachable(ctx, c.Target, c.credentials); err != nil {
		// It cannot be asked to let its pods go.
		t.Progress(fmt.Sprintf("%s does not answer (%v): its VM is restarted as it is", c.Name, err))

		return rollout.Change{Effect: impact.EffectReboot, Unreachable: true}, t.restarts.checkUnreachable(ctx, c)
	}

	t.before, err = t.waitRunning(ctx, c)

	return rollout.Change{Effect: impact.EffectReboot}, err
}

// WaitRejoined waits until the node has booted again and what runs on it is up.
func (t *talosRestart) WaitRejoined(ctx context.Context) error {
	if _, err := t.waitBooted(ctx, t.nodeChange, t.before); err != nil {
		return err
	}

	return t.talosNode.WaitRejoined(ctx)
}

// running is a node as it is addressed now. A hook of its VM sees neither credentials nor addresses.
func (t *Restarts) running(ctx context.Context, n plan.Node) (c nodeChange, err error) {
	c = nodeChange{node: n, Target: talosapi.Target{Name: n.Name}}

	if c.credentials, err = t.currentCredentials(ctx); err != nil {
		return c, err
	}

	t.discovery.Locate(ctx, append(t.Plan.ControlPlanes(), n), t.Addresses)

	c.Address = t.Addresses.Get(n.Name)

	return c, nil
}

// joined says whether the node is one of a cluster: it has its configuration, and the cluster has been started.
func (t *Restarts) joined(ctx context.Context, c nodeChange) bool {
	return !talosapi.Unconfigured(ctx, c.Target) && talosapi.Founded(ctx, t.others(c), c.credentials)
}

// checkUnreachable holds that etcd does without a control plane that does not answer.
func (t *Restarts) checkUnreachable(ctx context.Context, c nodeChange) error {
	if c.node.Role != spec.RoleControlPlane {
		return nil
	}

	return rollout.WaitHealthy(ctx, t.Plan, t.Progress, "etcd", func(ctx context.Context) error {
		members, err := talosapi.EtcdMembers(ctx, t.others(c), c.credentials)
		if err != nil {
			// There is no quorum that could be lost.
			return nil //nolint:nilerr // that is what is asked
		}

		return etcd.CanStop(members, c.Name)
	})
}

// PreviewRestart warns of what would keep the node from being restarted as it is now.
func (t *Restarts) PreviewRestart(ctx context.Context, n plan.Node) string {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	c, err := t.running(ctx, n)
	if err != nil || n.Role != spec.RoleControlPlane {
		return ""
	}

	return t.previewDisruption(ctx, c, impact.EffectReboot)
}

// Kubernetes is that of whatever control plane answers.
func (t *Restarts) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	c, err := t.currentCredentials(ctx)
	if err != nil {
		return nil, err
	}

	return kubernetes(ctx, t.controlPlanes(), c)
}
