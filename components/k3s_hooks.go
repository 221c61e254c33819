package components

import (
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	k3srollout "talos-proxmox/components/rollout/k3s"
	"talos-proxmox/components/rollout/vmrestart"
)

// k3sHooks are the hooks of one cluster of K3s.
type k3sHooks struct {
	// limiter is shared by all that take a running node down.
	limiter *rollout.Limiter
	// operations on the nodes.
	operations k3srollout.Operations

	vmHooks

	identities *proxmoxvm.Identities

	// joined runs before a node counts as one: it is ready in Kubernetes, and cloud-init has finished.
	joined *pulumi.ResourceHook
	// upgraded runs before another version of K3s is noted of a node, and has the node run it. It runs in previews, too.
	upgraded *pulumi.ResourceHook
	// leaves runs before a node is removed, and takes it out of the cluster, or refuses that. It runs in previews, too.
	leaves *pulumi.ResourceHook
}

// registerHooks registers the hooks of the cluster.
func (b *k3sBuilder) registerHooks() error {
	p, program := b.Plan, programOf(b.ctx, b.name)
	h := &b.hooks
	h.limiter = rollout.NewLimiter(max(p.MaxUnavailable, 1))
	h.identities = proxmoxvm.NewIdentities(b.ctx, p, b.proxmox, b.report.VM)
	h.deletions = !p.Teardown || b.destroying

	h.operations = k3srollout.New(k3srollout.Options{
		Program: program, Plan: p, Proxmox: b.proxmox, Inventory: b.report, Addresses: b.servers,
		Identities: h.identities, Limiter: h.limiter, Kubeconfig: b.admin, Nodes: nodesBy(p, b.name, "-joined"),
	})

	var errs []error

	register := hookutil.Registering(b.ctx, b.name, &errs)
	previews := &pulumi.ResourceHookOptions{OnDryRun: true}

	errs = append(errs, h.vmHooks.register(b.ctx, b.name, vmrestart.New(vmrestart.Options{
		Program: program, Plan: p, Proxmox: b.proxmox, Permissions: b.report,
		Rollout: rollout.New(p, h.limiter, program.Progress), Nodes: nodesBy(p, b.name, "-vm"), System: h.operations.Cluster,
		Identities: h.identities,
	}), register))

	register(&h.joined, "node-joined", h.operations.Cluster.WaitJoined)
	register(&h.upgraded, "node-upgraded", h.operations.Upgrades.Upgrade, previews)
	register(&h.leaves, "node-leaves", h.operations.Removals.Remove, previews)

	return errors.Join(errs...)
}
