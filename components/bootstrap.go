package components

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// bootstrap holds that a cluster has one etcd for the whole of its life. The kubeconfig in the state is the record that there has been
// one: it is created after the bootstrap and never replaced, so that only its creation starts a cluster. After that, an etcd is begun only
// from a snapshot, or empty where the operator says so.
type bootstrap struct {
	ctx       *pulumi.Context
	name      string
	plan      *plan.Plan
	addresses *proxmoxvm.AddressBook
	report    *preflight.Report
	backup    backup
	dir       string
	say       wait.Say
	// joins says that a control plane has got its first configuration in this run, and is not known to be up yet.
	joins atomic.Bool
	// accepted says that the operator has accepted an empty cluster in this run.
	accepted atomic.Bool
}

// begin starts a cluster where no control plane holds data of etcd.
func (b *bootstrap) begin(ctx context.Context, c talosapi.Credentials, from *talosapi.Recovery) error {
	return talosapi.Bootstrap(ctx, controlPlanes(b.plan, b.addresses), c, from, b.plan.NodeTimeout, b.say)
}

// ready waits until the control plane is up.
func (b *bootstrap) ready(ctx context.Context, c talosapi.Credentials) error {
	if err := talosapi.WaitReady(ctx, controlPlanes(b.plan, b.addresses), c, b.plan.ReadyTimeout, b.say); err != nil {
		return err
	}

	b.joins.Store(false)

	// The first control plane's own address has just been found to be up.
	if b.plan.EndpointMode == spec.EndpointFirstControlPlane {
		return nil
	}

	return talosapi.WaitEndpoint(ctx, b.plan.Endpoint, b.plan.ReadyTimeout, b.say)
}

// lost refuses to begin an empty etcd where there has been one.
func (b *bootstrap) lost() error {
	kept := "no snapshot of it is known"

	if b.backup.store != nil {
		kept = "no snapshot of it is in " + b.plan.Backup.Dir

		if all, err := b.backup.store.List(); err == nil && len(all) > 0 {
			kept = "its newest snapshot is " + filepath.Join(b.plan.Backup.Dir, filepath.Base(all[0].Path))
		}
	}

	accept := "set lifecycle.acceptEmptyCluster to " + b.plan.Cluster
	if b.plan.AcceptEmpty {
		accept = "run 'pulumi state delete' with the URN of " + b.name + emptied + ": lifecycle.acceptEmptyCluster has been carried out before"
	}

	return lifecycle.Refusal{
		Rule:   "etcd is lost: no control plane holds its data, and " + b.plan.Cluster + " would begin as an empty cluster; " + kept,
		Remedy: "to begin with a snapshot, set cluster.recoverFrom to it; to begin with an empty cluster, " + accept + "; " + toDestroy,
	}
}

// emptied ends the name of the record that an empty cluster was accepted.
const emptied = "-empty"

// mayLose runs before the configuration of a control plane is forgotten whose machine is gone or new. The error is why it stays: with the
// last that may hold data of etcd, the state would no longer know that there has been a cluster.
func (b *bootstrap) mayLose(ctx context.Context, l leaver) error {
	if l.role != spec.RoleControlPlane || b.report == nil || b.plan.RecoverFrom != "" || b.plan.AcceptEmpty {
		return nil
	}

	var others []talosapi.Target

	for _, n := range b.plan.ControlPlanes() {
		if n.Name != l.Name && b.report.Exists(n) {
			others = append(others, talosapi.Target{Name: n.Name, Address: b.addresses.Get(n.Name)})
		}
	}

	// One that does not answer may hold them.
	if !talosapi.AskEtcd(ctx, others, l.credentials).All(talosapi.EtcdEmpty, talosapi.EtcdUnconfigured) {
		return nil
	}

	return b.lost()
}

// established is the kubeconfig, known when the cluster has its etcd and control planes that came in this run have joined it. A run in which
// nothing answers that nothing was done to is not held up.
func (b *bootstrap) established(c machine.ClientConfigurationOutput, kubeconfig pulumi.StringOutput, after []pulumi.Resource) pulumi.StringOutput {
	waited := []any{kubeconfig, c.CaCertificate(), c.ClientCertificate(), c.ClientKey()}
	for _, r := range after {
		waited = append(waited, r.(pulumi.CustomResource).ID())
	}

	return pulumi.All(waited...).ApplyT(func(all []any) (string, error) {
		return all[0].(string), b.hold(hookutil.Interruptible(b.ctx.Context()), talosapi.Credentials{CA: all[1].(string), Certificate: all[2].(string), Key: all[3].(string)})
	}).(pulumi.StringOutput)
}

func (b *bootstrap) hold(ctx context.Context, c talosapi.Credentials) error {
	if b.ctx.DryRun() || b.plan.Teardown {
		return nil
	}

	targets := controlPlanes(b.plan, b.addresses)
	joins, lost := b.joins.Load(), false

	err := wait.Until(ctx, b.plan.ReadyTimeout, b.say, func(ctx context.Context) (string, error) {
		report := talosapi.AskEtcd(ctx, targets, c)
		waits := report.Any(talosapi.EtcdEmpty, talosapi.EtcdUnconfigured)
		joins = joins || waits

		switch {
		case report.Any(talosapi.EtcdHeld), !joins:
			return "", nil
		case report.All(talosapi.EtcdEmpty):
			lost = true

			return "", nil
		default:
			return "etcd, of which no control plane that answers holds data: " + report.Lacks(), nil
		}
	})
	if err != nil {
		return fmt.Errorf("no second etcd is begun: %w; bring the control planes back that hold its data, then run 'pulumi up' again", err)
	}

	switch {
	case lost && b.accepted.Load():
		if err := b.ready(ctx, c); err != nil {
			return err
		}
	case lost && b.plan.RecoverFrom == "":
		return b.lost()
	case lost:
		from, err := recovery(b.plan, b.dir)
		if err != nil {
			return err
		}

		if err := b.begin(ctx, c, from); err != nil {
			return err
		}

		if err := b.ready(ctx, c); err != nil {
			return err
		}
	case joins:
		if err := b.ready(ctx, c); err != nil {
			return err
		}
	}

	return b.one(ctx, targets, c)
}

// checked are the credentials of the cluster, known when its etcd was found to be one: nothing is configured before.
func (b *bootstrap) checked(c machine.ClientConfigurationOutput) machine.ClientConfigurationOutput {
	return c.ApplyT(func(client machine.ClientConfiguration) (machine.ClientConfiguration, error) {
		var there []talosapi.Target

		for _, n := range b.plan.ControlPlanes() {
			if address := b.addresses.Get(n.Name); b.report.Exists(n) && address != "" {
				there = append(there, talosapi.Target{Name: n.Name, Address: address})
			}
		}

		return client, b.one(hookutil.Interruptible(b.ctx.Context()), there, talosapi.Credentials{
			CA: client.CaCertificate, Certificate: client.ClientCertificate, Key: client.ClientKey,
		})
	}).(machine.ClientConfigurationOutput)
}

// one holds that all members of etcd are of one cluster. One that joins or leaves while the others are asked may look otherwise for a
// moment.
func (b *bootstrap) one(ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials) error {
	if b.plan.Teardown || len(controlPlanes) < 2 {
		return nil
	}

	patience := wait.Patience{Bound: b.plan.SettleTimeout}

	return wait.Until(ctx, b.plan.ReadyTimeout, b.say, func(ctx context.Context) (string, error) {
		err := talosapi.OneEtcd(ctx, controlPlanes, c)

		switch {
		case err == nil:
			return "", nil
		case patience.Over():
			return "", lifecycle.Refusal{
				Rule: err.Error() + ", so no node is configured",
				Remedy: "decide which of them holds the data that you need, then wipe each control plane of the other: 'talosctl reset --nodes " +
					"<address> --graceful=false --reboot --system-labels-to-wipe EPHEMERAL'; it joins the one that is left",
			}
		default:
			return "one etcd (" + err.Error() + ")", nil
		}
	})
}

// emptied is the record that an empty etcd was wanted and begun: what the operator has said once counts once. It is there as long as the key
// is set.
func (b *builder) emptied(after []pulumi.Resource) (pulumi.Resource, error) {
	if !b.Plan.AcceptEmpty {
		return nil, nil //nolint:nilnil // nothing was said
	}

	return pulumi.NewStash(b.ctx, b.name+emptied, &pulumi.StashArgs{Input: pulumi.String("an empty cluster was accepted")}, b.child,
		pulumi.DependsOn(after),
		pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: []*pulumi.ResourceHook{b.hooks.emptied}}))
}
