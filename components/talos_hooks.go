package components

import (
	"errors"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos"
	"talos-proxmox/components/rollout/vmrestart"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// talosHooks are the hooks of one Talos cluster.
type talosHooks struct {
	// limiter is shared by all that take a running node down.
	limiter *rollout.Limiter
	// operations on the nodes.
	operations talos.Operations
	// system is what runs in the VMs; nil with bootstrap: external.
	system rollout.System
	// credentials are known as soon as the identity of the cluster is.
	credentials *rollout.Future[talosapi.Credentials]
	// uuids of the VMs, as they become known.
	uuids map[string]*rollout.Future[string]

	vmHooks

	identities *proxmoxvm.Identities

	// answering runs before a node is configured for the first time: the provider would look for a node that is not up yet
	// only every ten seconds.
	answering *pulumi.ResourceHook
	// adopted runs after it, and in previews: a node that runs already is changed as others are.
	adopted *pulumi.ResourceHook
	// detached runs after it, and takes the ISO file out of the node's drive.
	detached *pulumi.ResourceHook
	// configured runs after it, and gives the node its first configuration.
	configured *pulumi.ResourceHook
	// bootstrapped runs before the kubeconfig is fetched and starts the cluster. It is no resource because it is done once
	// and leaves nothing to manage; as one, a lost reply would leave a cluster that no later run could take over.
	bootstrapped *pulumi.ResourceHook
	// emptied runs before it is recorded that an empty cluster was accepted, and starts one.
	emptied *pulumi.ResourceHook
	// ready runs after it: whoever reads the kubeconfig finds a cluster that answers.
	ready *pulumi.ResourceHook
	// removed runs before the configuration of a node is deleted, and its VM after it: the node leaves the cluster first,
	// or nothing goes. It runs in previews, too.
	removed *pulumi.ResourceHook
	// changed runs before the configuration of a running node is changed, and does what takes the node down. It runs in
	// previews, too, and says there what would become of the node.
	changed *pulumi.ResourceHook
}

// registerTalosHooks registers the hooks of the cluster whose component is called name.
func registerTalosHooks(
	ctx *pulumi.Context, name string, args *TalosClusterArgs, addresses *proxmoxvm.AddressBook,
) (talosHooks, error) {
	p, report, program := args.Plan, args.Preflight, programOf(ctx, name)
	h := talosHooks{
		limiter: rollout.NewLimiter(max(p.MaxUnavailable, 1)), credentials: rollout.NewFuture[talosapi.Credentials](),
		uuids:      map[string]*rollout.Future[string]{},
		identities: proxmoxvm.NewIdentities(ctx, p, args.Proxmox, report.VM),
	}
	h.deletions = !p.Teardown || args.Destroying

	for _, n := range p.Nodes() {
		h.uuids[n.Name] = rollout.NewFuture[string]()
	}

	h.operations = talos.New(talos.Options{
		Program: program, Plan: p, Proxmox: args.Proxmox, Inventory: report, Addresses: addresses,
		Identities: h.identities, Limiter: h.limiter, Credentials: h.credentials, UUIDs: h.uuids,
		Nodes: nodesBy(p, name, "-config"), Dir: args.Dir, EmptyRecord: name + emptied,
	})

	restarts := rollout.New(p, h.limiter, program.Progress)

	if p.Bootstrap != spec.BootstrapExternal {
		h.system = h.operations.Restarts
	} else {
		// Only the VM is waited for, and its failure reports itself nowhere.
		restarts.Bound = p.ReadyTimeout
	}

	var errs []error

	register := hookutil.Registering(ctx, name, &errs)
	previews := &pulumi.ResourceHookOptions{OnDryRun: true}

	errs = append(errs, h.vmHooks.register(ctx, name, vmrestart.New(vmrestart.Options{
		Program: program, Plan: p, Proxmox: args.Proxmox, Permissions: report, Rollout: restarts,
		Nodes: nodesBy(p, name, "-vm"), System: h.system, Identities: h.identities,
	}), register))

	register(&h.answering, "node-answering", h.operations.Changes.WaitAnswering)
	register(&h.adopted, "node-adopted", h.operations.Changes.ConfigureExisting, previews)
	register(&h.detached, "iso-detached", h.operations.Changes.EjectISO)
	register(&h.configured, "node-configured", h.operations.Changes.Configure)
	register(&h.changed, "changed", h.operations.Changes.Change, previews)
	register(&h.removed, "removed", h.operations.Removals.Remove, previews)
	register(&h.bootstrapped, "bootstrapped", h.operations.Bootstrap.Begin)
	register(&h.ready, "ready", h.operations.Bootstrap.WaitReady)
	register(&h.emptied, "emptied", h.operations.Bootstrap.BeginEmpty)

	return h, errors.Join(errs...)
}
