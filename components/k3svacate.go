package components

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/wait"
)

// k3sInside is what runs in the VMs of a cluster of K3s. Nothing can be asked of the machines themselves, so Kubernetes is.
type k3sInside struct {
	k3sServers

	ctx *pulumi.Context
	// kubeconfig is known as soon as the identity of the cluster is, whatever server it names.
	kubeconfig *future[string]
	// discovery finds the address of a node that is not known yet; nil: all are stated.
	discovery *proxmoxvm.Discovery
	say       wait.Say
}

// vacate makes a node ready for the restart of its VM. Every step may be done already, by a run that was cut off.
func (k *k3sInside) vacate(ctx context.Context, n plan.Node) (vacated, error) {
	if err := k.learn(ctx); err != nil {
		return vacated{}, err
	}

	var (
		before kubeapi.Node
		there  bool
	)

	kube, err := k.room(ctx, n, &before, &there)

	switch {
	case err != nil:
		return vacated{}, err
	case kube != nil && !there:
		// It has never joined.
		return vacated{}, nil
	case kube == nil || !before.Ready:
		k.say(n.Name + " is not ready in Kubernetes: its VM is restarted as it is")

		return vacated{back: func(ctx context.Context) error { return k.back(ctx, n, "") }}, nil
	}

	// A node by itself has no other place for its pods.
	if len(k.plan.Nodes()) > 1 {
		d := rollout.Drain{Kube: kube, Node: n.Name, Bound: k.plan.DrainTimeout, Say: k.say}
		if err := d.Run(ctx); err != nil {
			return vacated{}, err
		}

		if err := d.Recheck(ctx, func(ctx context.Context) error { return k.recheck(ctx, n) }); err != nil {
			return vacated{}, err
		}
	}

	return vacated{
		back:   func(ctx context.Context) error { return k.back(ctx, n, before.Boot) },
		reopen: func(ctx context.Context) error { return kube.Uncordon(ctx, n.Name) },
	}, nil
}

// learn finds out what a hook of a VM does not see: the kubeconfig, and where the servers are.
func (k *k3sInside) learn(ctx context.Context) error {
	kubeconfig, known := k.kubeconfig.get(ctx, k.plan.NodeTimeout)
	if !known {
		return fmt.Errorf("the credentials of the cluster are not known after %s", k.plan.NodeTimeout)
	}

	k.known.Set("", kubeconfig)
	k.discovery.Locate(ctx, k.plan.ControlPlanes(), k.known)

	return nil
}

// room waits until the cluster can do without the node, and says how that is. Without a server that answers there is no client:
// then a server may go, for nothing is lost with it.
func (k *k3sInside) room(ctx context.Context, n plan.Node, now *kubeapi.Node, there *bool) (*kubeapi.Client, error) {
	var kube *kubeapi.Client

	err := rollout.WaitHealthy(ctx, k.plan, k.say, "the cluster to do without "+n.Name, func(ctx context.Context) (err error) {
		if kube, err = k.k3sServers.api(ctx, n.Name); err != nil {
			return err
		}

		return k.spare(ctx, kube, n, now, there)
	})
	if kube == nil && n.Role == plan.ControlPlane && ctx.Err() == nil {
		return nil, nil //nolint:nilnil // nobody answers, and that is what is told
	}

	if err != nil {
		return nil, err
	}

	return kube.WithRetry(k.plan.SettleTimeout, k.say, k.addresses()...)
}

// recheck holds that the cluster can still do without a drained node. It had an API server that answered when the
// drain began.
func (k *k3sInside) recheck(ctx context.Context, n plan.Node) error {
	var (
		now   kubeapi.Node
		there bool
	)

	kube, err := k.room(ctx, n, &now, &there)
	if err == nil && kube == nil {
		err = errors.New("no Kubernetes API answers any more")
	}

	return err
}

func (k *k3sInside) spare(ctx context.Context, kube *kubeapi.Client, n plan.Node, now *kubeapi.Node, there *bool) error {
	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return err
	}

	*there = false

	for _, found := range nodes {
		if found.Name == n.Name {
			*now, *there = found, true
		}
	}

	if n.Role != plan.ControlPlane {
		return rollout.CheckWorkers(k.plan, nodes, n.Name)
	}

	members := k.members(ctx, nodes)

	switch {
	case *there && !now.Ready:
		return lifecycle.Dispensable(members, n.Name)
	default:
		return lifecycle.Outage(members, n.Name, lifecycle.Reboot)
	}
}

// back waits until a node has booted again and is ready, a server by its own word: its API is there when its etcd is.
func (k *k3sInside) back(ctx context.Context, n plan.Node, before string) error {
	return wait.Until(ctx, k.plan.UpgradeTimeout, k.say, func(ctx context.Context) (string, error) {
		if n.Role == plan.ControlPlane {
			// Its address may not have been known before.
			k.discovery.Locate(ctx, []plan.Node{n}, k.known)

			if k.known.Get(n.Name) == "" {
				return n.Name + " to report its address", nil
			}
		}

		kube, err := k.k3sServers.api(ctx, n.Name)
		if err == nil && n.Role == plan.ControlPlane {
			kube, err = k.apiOf(n.Name)
		}

		if err != nil {
			return err.Error(), nil //nolint:nilerr // it is waited for
		}

		now, there, err := kube.Node(ctx, n.Name)

		switch {
		case err != nil:
			return fmt.Sprintf("%s to be ready in Kubernetes (%v)", n.Name, wait.Reason(err)), nil
		case !there:
			return n.Name + " to join Kubernetes", nil
		case before != "" && now.Boot == before:
			return n.Name + " to restart", nil
		case !now.Ready:
			return n.Name + " to be ready in Kubernetes", nil
		}

		return "", kube.Uncordon(ctx, n.Name)
	})
}

// outage is the judgement of a preview.
func (k *k3sInside) outage(ctx context.Context, n plan.Node) string {
	ctx, cancel := context.WithTimeout(ctx, wait.Ask)
	defer cancel()

	if n.Role != plan.ControlPlane {
		return ""
	}

	var (
		now   kubeapi.Node
		there bool
	)

	err := k.learn(ctx)
	if err == nil {
		var kube *kubeapi.Client
		if kube, err = k.k3sServers.api(ctx, n.Name); err == nil {
			err = k.spare(ctx, kube, n, &now, &there)
		}
	}

	if err != nil {
		_ = k.ctx.Log.Warn(fmt.Sprintf("as it is now, %s would not be taken down: %v", n.Name, err), nil)
	}

	return lifecycle.Quorum(len(k.plan.ControlPlanes()))
}

// api is Kubernetes, by whatever server answers.
func (k *k3sInside) api(ctx context.Context) (*kubeapi.Client, error) {
	if err := k.learn(ctx); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}

	return k.k3sServers.api(ctx, "")
}
