package components

import (
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/k3s"
	"talos-proxmox/components/rollout/vmrestart"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
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
	// applyManifests runs before it is noted that Kubernetes has manifests.
	applyManifests *pulumi.ResourceHook
	// manifests are what it applies.
	manifests *wait.Future[[]kubeapi.Manifest]
	// versions of K3s that servers have.
	versions rollout.ControlPlaneVersions
}

// registerK3sHooks registers the hooks of the cluster whose component is called name.
func registerK3sHooks(ctx *pulumi.Context, name string, a hookArgs, proxmox K3sProxmox, id *k3sIdentity,
) (k3sHooks, error) {
	if err := a.checkDestroy(); err != nil {
		return k3sHooks{}, err
	}

	p := a.plan
	h := k3sHooks{
		vmHooks: vmHooks{report: a.report}, scope: scopeOf(ctx, name, a), manifests: wait.NewFuture[[]kubeapi.Manifest](),
		versions: rollout.NewControlPlaneVersions(p),
	}

	h.operations = k3s.New(k3s.Options{
		Scope: h.scope, Proxmox: proxmox, ProxmoxMajor: a.report.ProxmoxMajor(),
		Kubeconfig: id.anyServer, Identity: id.known,
		Manifests: h.manifests, Versions: h.versions, Nodes: nodesBy(p, name, tokens.JoinedSuffix),
		EmptyRecord: name + tokens.EmptySuffix,
	})

	h.scope.Identities.SetUpOn = h.operations.Cluster.SetUpOn
	h.scope.Identities.Joined = rollout.JoinedBy(h.operations.Cluster.Kubernetes)

	var errs []error

	register := hookutil.Registering(ctx, name, &errs)
	previews := &pulumi.ResourceHookOptions{OnDryRun: true}

	errs = append(errs, h.vmHooks.register(ctx, name, vmrestart.New(vmrestart.Options{
		Scope: h.scope, Proxmox: proxmox, Permissions: a.report,
		Rollout: rollout.New(p, h.scope.Limiter, h.scope.Progress), Nodes: nodesBy(p, name, tokens.VMSuffix),
		System: h.operations.Cluster,
	}), register))

	register(&h.waitJoined, "node-joined", h.operations.Cluster.WaitJoined)
	register(&h.upgrade, "node-upgraded", h.operations.Upgrades.Upgrade, previews)
	register(&h.applyManifests, "manifests-applied", h.operations.Cluster.ApplyManifests)
	register(&h.remove, "node-leaves", h.operations.Removals.Remove, previews)

	return h, errors.Join(errs...)
}

// learnVersion publishes the version of K3s in the record of a server.
func (h *k3sHooks) learnVersion(node *K3sNode) {
	node.Joined.Input.ApplyT(func(known any) error {
		if values, ok := known.(map[string]any); ok {
			if version, ok := values["version"].(string); ok {
				h.versions[node.node.Name].Set(version)
			}
		}

		return nil
	})
}

// K3sProxmox is Proxmox for nodes with K3s, which are reached through their guest agents; *proxmoxapi.Client implements
// it.
type K3sProxmox interface {
	Proxmox
	k3s.Proxmox
}

// checkSharedSettings refuses a run that would create a server, or recreate one, which the servers that run would not
// let join. It runs before anything of a node is registered, in previews, too.
func checkSharedSettings(ctx *pulumi.Context, h k3sHooks, report *preflight.Report, cluster string) error {
	p := h.scope.Plan
	if report == nil || p.Teardown {
		return nil
	}

	var created []plan.Node

	for _, n := range p.ControlPlanes() {
		state, err := vmState(h.scope, report, cluster, n)
		if err != nil {
			return err
		}

		if !report.Exists(n) || report.Incomplete(n) || p.Replaces(n.Name) && !state.Replaced {
			created = append(created, n)
		}
	}

	problems, warnings := h.operations.Cluster.CheckSharedSettings(hookutil.Interruptible(ctx.Context()), created)

	for _, w := range warnings {
		if err := ctx.Log.Warn(w.String(), nil); err != nil {
			return err
		}
	}

	return problems.Err()
}
