package components

import (
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/k3s"
	"talos-proxmox/components/rollout/vmrestart"
	"talos-proxmox/components/tokens"
)

// k3sHooks are the hooks of one cluster of K3s.
type k3sHooks struct {
	scope rollout.Scope
	// operations on the nodes.
	operations k3s.Operations

	vmHooks

	// waitJoined runs before a node counts as one: it is ready in Kubernetes, and cloud-init has finished.
	waitJoined *pulumi.ResourceHook
	// upgrade runs before another version of K3s is noted of a node. It runs in previews, too.
	upgrade *pulumi.ResourceHook
	// remove runs before a node is deleted, and takes it out of the cluster, or refuses that. It runs in previews, too.
	remove *pulumi.ResourceHook
}

// registerHooks registers the hooks of the cluster.
func (b *k3sBuilder) registerHooks() error {
	p, h := b.Plan, &b.hooks
	h.scope = scopeOf(b.ctx, b.name, p, b.proxmox, b.report, b.servers)
	h.deletions = !p.Teardown || b.destroying

	h.operations = k3s.New(k3s.Options{
		Scope: h.scope, Proxmox: b.proxmox, Kubeconfig: b.admin, Identity: b.secrets,
		Nodes: nodesBy(p, b.name, "-joined"),
	})

	var errs []error

	register := hookutil.Registering(b.ctx, b.name, &errs)
	previews := &pulumi.ResourceHookOptions{OnDryRun: true}

	errs = append(errs, h.vmHooks.register(b.ctx, b.name, vmrestart.New(vmrestart.Options{
		Scope: h.scope, Proxmox: b.proxmox, Permissions: b.report,
		Rollout: rollout.New(p, h.scope.Limiter, h.scope.Progress), Nodes: nodesBy(p, b.name, tokens.VMSuffix),
		System: h.operations.Cluster,
	}), register))

	register(&h.waitJoined, "node-joined", h.operations.Cluster.WaitJoined)
	register(&h.upgrade, "node-upgraded", h.operations.Upgrades.Upgrade, previews)
	register(&h.remove, "node-leaves", h.operations.Removals.Remove, previews)

	return errors.Join(errs...)
}
