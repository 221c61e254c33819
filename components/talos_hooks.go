package components

import (
	"context"
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/rollout/vmrestart"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/talosimage"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// talosHooks are the hooks of one Talos cluster.
type talosHooks struct {
	scope rollout.Scope
	// operations on the nodes.
	operations talos.Operations
	// system is what runs in the VMs; nil with bootstrap: external.
	system rollout.System
	// credentials are known as soon as the identity of the cluster is.
	credentials *wait.Future[talosapi.Credentials]
	// uuids of the VMs, as they become known.
	uuids map[string]*wait.Future[string]
	// versions of Kubernetes that control planes have been configured with.
	versions rollout.ControlPlaneVersions

	vmHooks

	// These run before a node is configured for the first time, configureExisting in previews, too.
	waitAnswering, configureExisting, ejectISO, configure *pulumi.ResourceHook
	// change runs before the configuration of a running node is changed. It runs in previews, too.
	change *pulumi.ResourceHook
	// remove runs before the configuration of a node is deleted, and its VM after it: the node leaves the cluster first,
	// or nothing is deleted. It runs in previews, too.
	remove *pulumi.ResourceHook
	// bootstrap and waitReady run before the kubeconfig is fetched. The bootstrap is no resource because it is done once
	// and leaves nothing to manage; as one, a lost reply would leave a cluster that no later run could import.
	bootstrap, waitReady *pulumi.ResourceHook
	// beginEmpty runs before it is recorded that an empty cluster was accepted.
	beginEmpty *pulumi.ResourceHook
}

// registerTalosHooks registers the hooks of the cluster whose component is called name.
// Paths of the plan begin in dir; passphrase encrypts snapshots of etcd.
func registerTalosHooks(ctx *pulumi.Context, name string, a hookArgs, dir, passphrase string) (talosHooks, error) {
	if err := a.checkDestroy(); err != nil {
		return talosHooks{}, err
	}

	p := a.plan
	h := talosHooks{
		vmHooks: vmHooks{report: a.report}, scope: scopeOf(ctx, name, a),
		credentials: wait.NewFuture[talosapi.Credentials](), uuids: map[string]*wait.Future[string]{},
		versions: rollout.NewControlPlaneVersions(p),
	}

	for _, n := range p.Nodes() {
		h.uuids[n.Name] = wait.NewFuture[string]()
	}

	h.operations = talos.New(cluster.Options{
		Scope: h.scope, Proxmox: a.proxmox, Credentials: h.credentials, UUIDs: h.uuids,
		Versions: h.versions,
		Nodes:    nodesBy(p, name, tokens.ConfigurationSuffix), Dir: dir, EmptyRecord: name + tokens.EmptySuffix,
		BackupPassphrase: passphrase,
	})

	restarts := externalRollout(h.scope)

	if p.Bootstrap != spec.BootstrapExternal {
		restarts = rollout.New(p, h.scope.Limiter, h.scope.Progress)
		h.system = h.operations.Restarts
		h.scope.Identities.SetUpOn = h.operations.Restarts.SetUpOn
		h.scope.Identities.Joined = rollout.JoinedBy(h.operations.Restarts.Kubernetes)
	}

	var errs []error

	register := hookutil.Registering(ctx, name, &errs)
	previews := &pulumi.ResourceHookOptions{OnDryRun: true}

	errs = append(errs, h.vmHooks.register(ctx, name, vmrestart.New(vmrestart.Options{
		Scope: h.scope, Proxmox: a.proxmox, Permissions: a.report, Rollout: restarts,
		Nodes: nodesBy(p, name, tokens.VMSuffix), System: h.system,
	}), register))

	register(&h.waitAnswering, "node-answering", h.operations.Changes.WaitAnswering)
	register(&h.configureExisting, "node-adopted", h.operations.Changes.ConfigureExisting, previews)
	register(&h.ejectISO, "iso-detached", h.operations.Changes.EjectISO)
	register(&h.configure, "node-configured", h.operations.Changes.Configure)
	register(&h.change, "changed", h.operations.Changes.Change, previews)
	register(&h.remove, "removed", h.operations.Removals.Remove, previews)
	register(&h.bootstrap, "bootstrapped", h.startingCluster(h.operations.Bootstrap.Begin))
	register(&h.waitReady, "ready", h.operations.Bootstrap.WaitReady)
	register(&h.beginEmpty, "emptied", h.startingCluster(h.operations.Bootstrap.BeginEmpty))

	return h, errors.Join(errs...)
}

// startingCluster notes before etcd is begun that all nodes have yet to join, also those that an earlier run has set
// up.
func (h *talosHooks) startingCluster(begin hookutil.Func) hookutil.Func {
	return func(ctx context.Context, args *pulumi.ResourceHookArgs) error {
		for _, n := range h.scope.Plan.Nodes() {
			h.scope.Limiter.AddJoining(n.Name)
		}

		return begin(ctx, args)
	}
}

// learnVersion publishes the version of Kubernetes in the recorded configuration of a control plane.
func (h *talosHooks) learnVersion(node *TalosNode) {
	pulumi.All(node.Applied.MachineConfigurationInput, node.Applied.ConfigPatches).ApplyT(func(all []any) error {
		text, _ := all[0].(string)
		patches, _ := all[1].([]string)

		applied, err := machineconfig.Applied(text, patches)
		if err == nil {
			h.versions[node.node.Name].Set(talosimage.System(applied).Kubernetes)
		}

		return err
	})
}
