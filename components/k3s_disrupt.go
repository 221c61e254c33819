package components

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// k3sInside is what runs in the VMs of a cluster of K3s. Nothing can be asked of the machines themselves, so Kubernetes
// is.
type k3sInside struct {
	k3sServers

	ctx *pulumi.Context
	// kubeconfig is known as soon as the identity of the cluster is, whatever server it names.
	kubeconfig *rollout.Future[string]
	// discovery finds the address of a node that is not known yet; nil: all are stated.
	discovery *proxmoxvm.Discovery
	say       wait.Say
}

// k3sNode is a node of K3s that is taken down.
type k3sNode struct {
	*k3sInside

	node plan.Node
}

// CheckDisruption waits until the cluster can do without the node.
func (k k3sNode) CheckDisruption(ctx context.Context, e lifecycle.Effect) error {
	_, err := k.waitHealthy(ctx, e)

	return err
}

// seenNode is a node as Kubernetes has it: whether a server has answered at last, whether it is there, and how it is.
type seenNode struct {
	kubeapi.Node
	answered, there bool
}

func (k k3sNode) waitHealthy(ctx context.Context, e lifecycle.Effect) (seen seenNode, err error) {
	err = rollout.WaitHealthy(ctx, k.plan, k.say, "the cluster to do without "+k.node.Name,
		func(ctx context.Context) (err error) {
			seen, err = k.check(ctx, k.node, e)

			return err
		})

	return seen, err
}

// Backup is left to K3s, which keeps snapshots of its etcd by itself.
func (k3sNode) Backup(context.Context) error { return nil }

// Kubernetes waits for a server that answers.
func (k k3sNode) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	return rollout.WaitKubernetes(ctx, k.plan, k.say, func(ctx context.Context) (*kubeapi.Client, error) {
		kube, err := k.k3sServers.api(ctx, k.node.Name)
		if err != nil {
			return nil, err
		}

		return kube.WithRetry(k.plan.SettleTimeout, k.say, k.addresses()...)
	})
}

// alone says that the node is all there is: its pods have no other place.
func (k k3sNode) alone() bool { return len(k.plan.Nodes()) == 1 }

// k3sRestart is the restart of a node's VM.
type k3sRestart struct {
	k3sNode

	// before is the boot that ends; empty: it is not known.
	before string
}

// Restart is the restart of the VM of a node.
func (k *k3sInside) Restart(n plan.Node) rollout.Cluster { return &k3sRestart{k3sNode: k3sNode{k, n}} }

// Evaluate finds out how the node is. Without a server that answers, a server may go: nothing is lost with it.
func (k *k3sRestart) Evaluate(ctx context.Context) (rollout.Change, error) {
	if err := k.learn(ctx); err != nil {
		return rollout.Change{}, err
	}

	seen, err := k.waitHealthy(ctx, lifecycle.Reboot)
	unanswered := !seen.answered && k.node.Role == spec.RoleControlPlane && ctx.Err() == nil

	switch {
	case err != nil && !unanswered:
		return rollout.Change{}, err
	case !unanswered && !seen.there:
		return rollout.Change{NotJoined: true}, nil
	case unanswered || !seen.Ready:
		k.say(k.node.Name + " is not ready in Kubernetes: its VM is restarted as it is")

		return rollout.Change{Effect: lifecycle.Reboot, Unreachable: true}, nil
	}

	k.before = seen.Boot

	return rollout.Change{Effect: lifecycle.Reboot, KeepPods: k.alone()}, nil
}

// learn finds out what a hook of a VM does not see: the kubeconfig, and where the servers are.
func (k *k3sInside) learn(ctx context.Context) error {
	kubeconfig, known := k.kubeconfig.Get(ctx, k.plan.NodeTimeout)
	if !known {
		return fmt.Errorf("the credentials of the cluster are not known after %s", k.plan.NodeTimeout)
	}

	k.known.Set("", kubeconfig)
	k.discovery.Locate(ctx, k.plan.ControlPlanes(), k.known)

	return nil
}

// check says how a node is, and why the cluster cannot do without it, or why that is not known.
func (k *k3sInside) check(ctx context.Context, n plan.Node, e lifecycle.Effect) (seen seenNode, err error) {
	kube, err := k.k3sServers.api(ctx, n.Name)
	if err != nil {
		return seen, err
	}

	seen.answered = true

	nodes, err := kube.Nodes(ctx)
	if err != nil {
		return seen, err
	}

	if i := slices.IndexFunc(nodes, func(found kubeapi.Node) bool { return found.Name == n.Name }); i >= 0 {
		seen.Node, seen.there = nodes[i], true
	}

	return seen, k.spare(ctx, nodes, seen, n, e)
}

// spare says why the cluster cannot do without the node now. For an upgrade, servers count that are planned and that
// Kubernetes does not know.
func (k *k3sInside) spare(
	ctx context.Context, nodes []kubeapi.Node, seen seenNode, n plan.Node, e lifecycle.Effect,
) error {
	if n.Role != spec.RoleControlPlane {
		return rollout.CheckWorkers(k.plan, nodes, n.Name)
	}

	members := k.members(ctx, nodes)

	if seen.there && !seen.Ready {
		if err := lifecycle.Dispensable(members, n.Name); err != nil {
			return err
		}
	} else if err := lifecycle.Outage(members, n.Name, lifecycle.Reboot); err != nil {
		return err
	}

	servers := len(k.plan.ControlPlanes())
	if e != lifecycle.Upgrade || servers == 1 {
		return nil
	}

	ready := 0

	for _, m := range members {
		if m.Name != n.Name && m.Problem == "" {
			ready++
		}
	}

	if need := lifecycle.Needed(servers); ready < need {
		return lifecycle.Refusal{
			Rule:   fmt.Sprintf("etcd needs %d other servers that are ready, and %d are", need, ready),
			Remedy: "repair the others first, then run 'pulumi up' again",
		}
	}

	return nil
}

// WaitRejoined waits until the node has booted again and is ready, a server by its own word: its API is there when its
// etcd is.
func (k *k3sRestart) WaitRejoined(ctx context.Context) error {
	n := k.node

	return wait.Until(ctx, k.plan.UpgradeTimeout, k.say, func(ctx context.Context) (string, error) {
		if n.Role == spec.RoleControlPlane {
			// Its address may not have been known before.
			k.discovery.Locate(ctx, []plan.Node{n}, k.known)

			if k.known.Get(n.Name) == "" {
				return n.Name + " to report its address", nil
			}
		}

		kube, err := k.k3sServers.api(ctx, n.Name)
		if err == nil && n.Role == spec.RoleControlPlane {
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
		case k.before != "" && now.Boot == k.before:
			return n.Name + " to restart", nil
		case !now.Ready:
			return n.Name + " to be ready in Kubernetes", nil
		default:
			return "", nil
		}
	})
}

// PreviewRestart warns of what would keep the node from being restarted as it is now.
func (k *k3sInside) PreviewRestart(ctx context.Context, n plan.Node) string {
	ctx, cancel := context.WithTimeout(ctx, wait.Ask)
	defer cancel()

	if n.Role != spec.RoleControlPlane {
		return ""
	}

	err := k.learn(ctx)
	if err == nil {
		_, err = k.check(ctx, n, lifecycle.Reboot)
	}

	if err != nil {
		_ = k.ctx.Log.Warn(fmt.Sprintf("as it is now, %s would not be taken down: %v", n.Name, err), nil)
	}

	return lifecycle.Quorum(len(k.plan.ControlPlanes()))
}

// Kubernetes is that of whatever server answers.
func (k *k3sInside) Kubernetes(ctx context.Context) (*kubeapi.Client, error) {
	if err := k.learn(ctx); err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}

	return k.k3sServers.api(ctx, "")
}
