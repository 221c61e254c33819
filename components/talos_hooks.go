package components

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// talosHooks are the hooks of one Talos cluster.
type talosHooks struct {
	// limiter is shared by all that take a running node down.
	limiter *rollout.Limiter
	// credentials are known as soon as the identity of the cluster is.
	credentials *future[talosapi.Credentials]
	// inside is what runs in the VMs; nil with bootstrap: external.
	inside inside

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
	// uuids of the VMs, as they become known.
	uuids vmUUIDs
	// bootstrapped runs before the kubeconfig is fetched and starts the cluster. It is no resource because it is done once
	// and leaves nothing to manage; as one, a lost reply would leave a cluster that no later run could take over.
	bootstrapped *pulumi.ResourceHook
	// emptied runs before it is recorded that an empty cluster was accepted, and starts one.
	emptied *pulumi.ResourceHook
	// bootstrap holds that the cluster has one etcd.
	bootstrap *bootstrap
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
func registerTalosHooks(ctx *pulumi.Context, name string, args *TalosClusterArgs,
	addresses *proxmoxvm.AddressBook) (talosHooks,
	error) {
	var (
		p, proxmox = args.Plan, args.Proxmox
		g          = talosHooks{limiter: rollout.NewLimiter(max(p.MaxUnavailable, 1)), credentials: newFuture[talosapi.Credentials](),
			uuids: newVMUUIDs(p)}
		say   = hookutil.Progress(ctx, name)
		kept  = newBackup(ctx, p, args.Dir, say)
		nodes = nodesBy(p, name, "-config")
		errs  []error
	)

	node := func(args *pulumi.ResourceHookArgs) (plan.Node, error) {
		n, there := nodes[args.Name]
		if !there {
			return n, fmt.Errorf("%s is the configuration of no node of the plan", args.Name)
		}

		return n, nil
	}

	register := hookutil.Registering(ctx, name, &errs)

	g.bootstrap = &bootstrap{
		ctx: ctx, name: name, plan: p, addresses: addresses, report: args.Preflight, backup: kept, dir: args.Dir,
		say: say,
	}
	rolled := &talosRollout{
		ctx: ctx, plan: p, addresses: addresses, rollout: rollout.New(p, g.limiter, say), backup: kept,
		say: say, nodes: nodes,
		report: args.Preflight, proxmox: proxmox, uuids: g.uuids,
	}
	restarted := &restarts{
		ctx: ctx, plan: p, proxmox: proxmox, rollout: rollout.New(p, g.limiter, say), say: say,
		nodes:  nodesBy(p, name, "-vm"),
		report: args.Preflight, under: map[string]underWay{}, grace: startGrace,
		identities: proxmoxvm.NewIdentities(ctx, p, proxmox, args.Preflight.VM),
	}

	g.identities, g.deletions = restarted.identities, !p.Teardown || args.Destroying

	if p.Bootstrap != spec.BootstrapExternal {
		g.inside = &talosInside{talosRollout: rolled, credentials: g.credentials, discovery: proxmoxvm.DiscoveryOf(p, proxmox)}
		restarted.inside = g.inside
	} else {
		// Only the VM is waited for, and its failure reports itself nowhere.
		restarted.rollout.Bound = p.ReadyTimeout
	}

	errs = append(errs, g.vmHooks.register(ctx, name, restarted, register))

	register(&g.answering, "node-answering", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		n, err := node(args)
		if err != nil {
			return err
		}

		if p.Apply == spec.ApplyStaged {
			return fmt.Errorf("lifecycle.apply: staged cannot configure %s for the first time; set auto", n.Name)
		}

		return talosapi.WaitAnswering(c, talosapi.Target{Name: n.Name, Address: hookutil.String(args.NewInputs, "node")},
			p.NodeTimeout, say)
	})

	register(&g.adopted, "node-adopted", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		if nodes[args.Name].Role == spec.RoleControlPlane {
			g.bootstrap.joins.Store(true)
		}

		return rolled.adopted(c, args)
	}, &pulumi.ResourceHookOptions{OnDryRun: true})

	register(&g.detached, "iso-detached", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		n, err := node(args)
		if err != nil {
			return err
		}

		if err := g.identities.CheckNow(c, n); err != nil {
			return err
		}

		return proxmoxvm.EjectISO(c, proxmox, n)
	})

	register(&g.configured, "node-configured", rolled.configured)

	register(&g.bootstrapped, "bootstrapped", func(c context.Context, hook *pulumi.ResourceHookArgs) error {
		from, err := recovery(p, args.Dir)
		if err != nil {
			return err
		}

		return g.bootstrap.begin(c, credentials(hook.NewInputs), from)
	})

	register(&g.ready, "ready", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return g.bootstrap.ready(c, credentials(args.NewInputs))
	})

	register(&g.emptied, "emptied", func(c context.Context, _ *pulumi.ResourceHookArgs) error {
		known, there := g.credentials.get(c, p.NodeTimeout)
		if !there {
			return errors.New("the credentials of the cluster are not known")
		}

		g.bootstrap.accepted.Store(true)

		return g.bootstrap.begin(c, known, nil)
	})

	r := &removal{
		ctx: ctx, plan: p, proxmox: proxmox, addresses: addresses, limiter: g.limiter, backup: kept,
		say: say, current: g.credentials, nodes: nodes,
		absent: args.Preflight.AbsentVMIDs(), bootstrap: g.bootstrap,
	}
	register(&g.removed, "removed", func(c context.Context, args *pulumi.ResourceHookArgs) error {
		return r.before(hookutil.Deleting(c), args)
	}, &pulumi.ResourceHookOptions{OnDryRun: true})
	register(&g.changed, "changed", rolled.before, &pulumi.ResourceHookOptions{OnDryRun: true})

	return g, errors.Join(errs...)
}

// nodesBy are the nodes of a plan by the name of one of their resources.
func nodesBy(p *plan.Plan, cluster, suffix string) map[string]plan.Node {
	nodes := map[string]plan.Node{}
	for _, n := range p.Nodes() {
		nodes[childName(cluster, n)+suffix] = n
	}

	return nodes
}

// controlPlanes are addressed one by one, never through the cluster's endpoint.
func controlPlanes(p *plan.Plan, addresses *proxmoxvm.AddressBook) []talosapi.Target {
	var targets []talosapi.Target
	for _, n := range p.ControlPlanes() {
		targets = append(targets, talosapi.Target{Name: n.Name, Address: addresses.Get(n.Name)})
	}

	return targets
}

// credentials are taken from the resource that the hook guards: they are known there, and come from nowhere else.
func credentials(inputs resource.PropertyMap) talosapi.Credentials {
	client := hookutil.Unwrap(inputs["clientConfiguration"])
	if !client.IsObject() {
		return talosapi.Credentials{}
	}

	c := client.ObjectValue()

	return talosapi.Credentials{
		CA: hookutil.String(c, "caCertificate"), Certificate: hookutil.String(c, "clientCertificate"),
		Key: hookutil.String(c, "clientKey"),
	}
}
