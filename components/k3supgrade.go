package components

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/k3s"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// upgraded runs before another version of K3s is noted of a node. Its error leaves the note as it is, so that the next update
// comes back to it. Servers come one after the other, and agents when all servers have it: their resources depend on each other
// so.
func (b *k3sBuilder) upgraded(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	j, err := b.joining(args.Name)
	if err != nil {
		return err
	}

	// Kubernetes knows it: it has its etcd.
	j.told = true

	u := &k3sUpgrade{k3sNode: k3sNode{b.hooks.inside, j.node}, joined: j, from: versionOf(args.OldInputs)}
	if u.from == u.plan.K3s.Version {
		return nil
	}

	if b.ctx.DryRun() {
		return b.foresee(u)
	}

	return b.hooks.upgrades.Disrupt(ctx, u.node, u, u.node.Name+" is not upgraded")
}

// versionOf is what is noted of a node.
func versionOf(inputs resource.PropertyMap) string {
	joined := hookutil.Unwrap(inputs["input"])
	if !joined.IsObject() {
		return ""
	}

	return hookutil.String(joined.ObjectValue(), "version")
}

// foresee says in a preview what will become of the node. A refusal is an error there, too.
func (b *k3sBuilder) foresee(u *k3sUpgrade) error {
	to := u.plan.K3s.Version
	row := lifecycle.Row{
		Node: u.node.Name, Pool: u.node.Pool, Role: string(u.node.Role), Now: "K3s " + u.from, Wanted: "K3s " + to,
		Effect: lifecycle.Upgrade, Why: "K3s " + u.from + " becomes " + to, Limits: lifecycle.Limits{MaxUnavailable: u.plan.MaxUnavailable, Canary: u.plan.Canary},
	}

	if u.node.Role == spec.RoleControlPlane {
		row.Quorum = lifecycle.Quorum(len(u.plan.ControlPlanes()))
	}

	refused := row.Refuse(lifecycle.K3sPath(u.from, to))

	return errors.Join(refused, programOf(b.ctx, b.name).Preview(row))
}

// k3sUpgrade is one node on its way to another version.
type k3sUpgrade struct {
	k3sNode

	joined *joining
	// from is the version that is noted.
	from string
}

// Evaluate finds out what is left to be done, also by hand.
func (u *k3sUpgrade) Evaluate(ctx context.Context) (rollout.Change, error) {
	now, err := u.running(ctx)
	if err != nil || now.Kubelet == u.plan.K3s.Version {
		return rollout.Change{}, err
	}

	if err := lifecycle.K3sPath(now.Kubelet, u.plan.K3s.Version); err != nil {
		return rollout.Change{}, err
	}

	install := func(ctx context.Context) error {
		u.say(fmt.Sprintf("%s: K3s %s becomes %s", u.node.Name, now.Kubelet, u.plan.K3s.Version))

		return u.tell(ctx, *u.plan.K3s)
	}

	return rollout.Change{
		Effect: lifecycle.Upgrade,
		// Pods outlive a restart of K3s, but not every kubelet keeps those of another minor version.
		KeepPods: !lifecycle.Minor(now.Kubelet, u.plan.K3s.Version) || u.alone(),
		Acts:     []rollout.Act{{Effect: lifecycle.Upgrade, Do: install}},
	}, nil
}

// WaitRejoined waits until the node runs the version that is planned.
func (u *k3sUpgrade) WaitRejoined(ctx context.Context) error {
	if err := u.joined.wait(ctx, u.plan.UpgradeTimeout, u.say); err != nil {
		return errors.Join(err, u.stay(context.WithoutCancel(ctx)))
	}

	return nil
}

// running is what the node runs, as the first server that answers has it.
func (u *k3sUpgrade) running(ctx context.Context) (now kubeapi.Node, err error) {
	err = wait.Until(ctx, u.plan.NodeTimeout, u.say, func(ctx context.Context) (string, error) {
		var there bool

		kube, err := u.answering(ctx)
		if err == nil {
			now, there, err = kube.Node(ctx, u.node.Name)
		}

		switch {
		case err != nil:
			return err.Error(), nil
		case !there:
			return "", errors.New("Kubernetes does not know it: bring it back, or recreate it")
		default:
			return "", nil
		}
	})

	return now, err
}

// tell writes what is wanted where the node looks for it. What went wrong before counts no longer.
func (u *k3sUpgrade) tell(ctx context.Context, wanted plan.PlannedK3s) error {
	proxmox := u.joined.proxmox

	if err := u.joined.identities.CheckNow(ctx, u.node); err != nil {
		return err
	}

	machine, there, err := proxmox.Find(ctx, u.node.VMID)
	if err == nil && !there {
		err = fmt.Errorf("there is no VM with VMID %d", u.node.VMID)
	}

	if err == nil {
		err = proxmox.WriteGuestFile(ctx, machine, k3s.FatalFile, "\n")
	}

	if err == nil {
		err = proxmox.WriteGuestFile(ctx, machine, k3s.WantedFile, k3s.Wanted(&wanted))
	}

	if errors.Is(err, proxmoxapi.ErrRefused) {
		err = fmt.Errorf("%w; give its role VM.GuestAgent.FileWrite (before Proxmox VE 9: VM.Monitor)", err)
	}

	if err != nil {
		return fmt.Errorf("it cannot be told through its guest agent: %w", err)
	}

	return nil
}

// stay has a node that still runs what it did go on with it: nothing is to happen to it behind the operator's back. The next
// update begins anew.
func (u *k3sUpgrade) stay(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, u.plan.SettleTimeout)
	defer cancel()

	now, err := u.running(short)
	if err != nil || now.Kubelet == u.plan.K3s.Version || !now.Ready {
		return nil //nolint:nilerr // it is on its way
	}

	before := *u.plan.K3s
	before.Version, before.Checksum = now.Kubelet, ""

	told := u.tell(ctx, before)

	kube, err := u.Kubernetes(ctx)
	if err == nil {
		err = kube.Uncordon(ctx, u.node.Name)
	}

	return errors.Join(told, err)
}
