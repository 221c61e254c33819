package bootstrap

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// Begin runs before the kubeconfig is fetched, and starts the cluster.
func (b *Bootstrap) Begin(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	c := cluster.CredentialsOf(args.NewInputs)

	from, err := b.readSnapshot(c)
	if err != nil {
		return err
	}

	if refused := b.checkBegin(c); refused != nil {
		// What begins already is not begun.
		if held, err := b.waitHeld(ctx, c); err != nil || !held {
			return errors.Join(refused, err)
		}
	}

	return b.begin(ctx, c, from)
}

// waitHeld waits until a control plane says that it holds data of etcd, or all of them say that they hold none.
func (b *Bootstrap) waitHeld(ctx context.Context, c talosapi.Credentials) (held bool, err error) {
	err = wait.Until(ctx, b.Plan.NodeTimeout, b.Progress, func(ctx context.Context) error {
		report := talosapi.AskEtcd(ctx, b.ControlPlanes(), c)
		held = report.Any(talosapi.EtcdHeld)

		if held || report.All(talosapi.EtcdEmpty) {
			return nil
		}

		return wait.For("%s", report.Missing())
	})

	return held, err
}

// WaitReady runs after Begin: what reads the kubeconfig finds a cluster that answers.
func (b *Bootstrap) WaitReady(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	return b.waitControlPlanes(ctx, cluster.CredentialsOf(args.NewInputs))
}

// BeginEmpty runs before it is recorded that an empty cluster was accepted, and starts one.
func (b *Bootstrap) BeginEmpty(ctx context.Context, _ *pulumi.ResourceHookArgs) error {
	c, err := b.CurrentCredentials(ctx)
	if err != nil {
		return err
	}

	b.acceptedEmpty.Store(true)

	return b.begin(ctx, c, nil)
}

// begin starts a cluster where no control plane holds data of etcd.
func (b *Bootstrap) begin(ctx context.Context, c talosapi.Credentials, from *talosapi.Recovery) error {
	return talosapi.Bootstrap(ctx, b.ControlPlanes(), c, from, b.Plan.NodeTimeout, b.Progress)
}

// waitControlPlanes waits until the control plane is up.
func (b *Bootstrap) waitControlPlanes(ctx context.Context, c talosapi.Credentials) error {
	if err := talosapi.WaitReady(ctx, b.ControlPlanes(), c, b.Plan.ReadyTimeout, b.Progress); err != nil {
		return err
	}

	b.membersExpected.Store(false)

	// The first control plane's own address has just been found to be up.
	if b.Plan.EndpointMode == spec.EndpointFirstControlPlane {
		return nil
	}

	return talosapi.WaitEndpoint(ctx, b.Plan.Endpoint, b.Plan.ReadyTimeout, b.Progress)
}

// CheckEstablished waits until the cluster has its etcd, and control planes that came in this run have joined it. A run
// that has done nothing to nodes that do not answer does not wait for them.
func (b *Bootstrap) CheckEstablished(ctx context.Context) error {
	if b.Plan.Teardown {
		return nil
	}

	if b.DryRun {
		b.previewArmed(ctx)

		return nil
	}

	c, err := b.CurrentCredentials(ctx)
	if err != nil {
		return err
	}

	targets := b.ControlPlanes()
	joins, lost := b.membersExpected.Load(), false

	err = wait.Until(ctx, b.Plan.ReadyTimeout, b.Progress, func(ctx context.Context) error {
		report := talosapi.AskEtcd(ctx, targets, c)
		waits := report.Any(talosapi.EtcdEmpty, talosapi.EtcdUnconfigured)
		joins = joins || waits

		b.warnArmed(report)

		switch {
		case report.Any(talosapi.EtcdHeld), !joins:
			return nil
		case report.All(talosapi.EtcdEmpty):
			lost = true

			return nil
		default:
			return wait.For("a control plane that holds etcd data; none of those that answer does: %s", report.Missing())
		}
	})
	if err != nil {
		return fmt.Errorf("no second etcd cluster is bootstrapped: %w; start the control planes that hold its "+
			"data, then run 'pulumi "+
			"up' again", err)
	}

	if lost && !b.acceptedEmpty.Load() {
		if err := b.checkNoneLeaves(ctx); err != nil {
			return err
		}

		if b.Plan.RecoverFrom == "" {
			return b.etcdLostError(c)
		}

		if err := b.CheckNewest(c); err != nil {
			return err
		}

		from, err := b.readSnapshot(c)
		if err != nil {
			return err
		}

		if err := b.begin(ctx, c, from); err != nil {
			return err
		}
	}

	if lost || joins {
		if err := b.waitControlPlanes(ctx, c); err != nil {
			return err
		}
	}

	return b.checkOneEtcd(ctx, targets, c)
}

// CheckOneEtcd checks that the control planes that exist are members of one etcd: no node is configured before.
func (b *Bootstrap) CheckOneEtcd(ctx context.Context, c talosapi.Credentials) error {
	var existing []talosapi.Target

	for _, n := range b.Plan.ControlPlanes() {
		if address := b.Addresses.Get(n.Name); b.Inventory.Exists(n) && address != "" {
			existing = append(existing, talosapi.Target{Name: n.Name, Address: address})
		}
	}

	return b.checkOneEtcd(ctx, existing, c)
}

// checkOneEtcd checks that all members of etcd are of one cluster. One that joins or leaves while the others are asked
// may look otherwise for a moment.
func (b *Bootstrap) checkOneEtcd(ctx context.Context, controlPlanes []talosapi.Target, c talosapi.Credentials) error {
	if b.Plan.Teardown || len(controlPlanes) < 2 {
		return nil
	}

	grace := wait.GracePeriod{Bound: b.Plan.SettleTimeout}

	return wait.Until(ctx, b.Plan.ReadyTimeout, b.Progress, func(ctx context.Context) error {
		err := talosapi.OneEtcd(ctx, controlPlanes, c)

		switch {
		case err == nil:
			return nil
		case grace.Expired():
			return spec.Blocked(
				err.Error()+", so no node is configured",
				"decide which of them holds the data that you need, then wipe each control plane of the other: "+
					"'talosctl reset --nodes <address> --graceful=false --reboot --system-labels-to-wipe EPHEMERAL'; it joins the "+
					"one that is left",
			)
		default:
			return wait.For("one etcd (%v)", err)
		}
	})
}
