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

	u := &k3sUpgrade{joining: j, from: versionOf(args.OldInputs), say: hookutil.Progress(b.ctx, b.name)}
	if u.from == u.plan.K3s.Version {
		return nil
	}

	if b.ctx.DryRun() {
		return b.foresee(u)
	}

	p := u.plan

	end, err := b.hooks.limiter.Acquire(ctx, u.node.Name, u.node.Role, rollout.Bound(p), u.say)
	if err != nil {
		return err
	}

	if err = u.run(ctx); err != nil {
		err = fmt.Errorf("%s is not upgraded: %w", u.node.Name, err)
	}

	end(err)

	return err
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
		Effect: lifecycle.Upgrade, Why: "K3s " + u.from + " becomes " + to, Limits: lifecycle.Limits{MaxUnavailable: max(u.plan.MaxUnavailable, 1)},
	}

	if u.node.Role == plan.ControlPlane {
		row.Quorum = lifecycle.Quorum(len(u.plan.ControlPlanes()))
	}

	refused := row.Refuse(lifecycle.K3sPath(u.from, to))

	return errors.Join(refused, tell(b.ctx, row))
}

// k3sUpgrade is one node on its way to another version.
type k3sUpgrade struct {
	*joining

	// from is the version that is noted.
	from string
	say  wait.Say
}

// run has the node install the version that is planned, and waits until it runs it. Every step may be done already, by a run
// that was cut off or by hand.
func (u *k3sUpgrade) run(ctx context.Context) error {
	kube, now, err := u.running(ctx)
	if err != nil {
		return err
	}

	if now.Kubelet != u.plan.K3s.Version {
		if err := u.begin(ctx, kube, now); err != nil {
			return err
		}
	}

	if err := u.wait(ctx, u.say); err != nil {
		return errors.Join(err, u.stay(context.WithoutCancel(ctx)))
	}

	return kube.Uncordon(ctx, u.node.Name)
}

// running is what the node runs, as the first server that answers has it.
func (u *k3sUpgrade) running(ctx context.Context) (kube *kubeapi.Client, now kubeapi.Node, err error) {
	err = wait.Until(ctx, u.plan.NodeTimeout, u.say, func(ctx context.Context) (string, error) {
		var there bool

		if kube, err = serversOf(u.plan, u.known).answering(ctx); err == nil {
			now, there, err = kube.Node(ctx, u.node.Name)
		}

		switch {
		case err != nil:
			return err.Error(), nil
		case !there:
			return "", errors.New("Kubernetes does not know it: bring it back, or make it anew")
		default:
			return "", nil
		}
	})
	if err != nil {
		return nil, now, err
	}

	kube, err = kube.WithRetry(u.plan.SettleTimeout, u.say, serversOf(u.plan, u.known).addresses()...)

	return kube, now, err
}

// begin makes room for the upgrade, and tells the node.
func (u *k3sUpgrade) begin(ctx context.Context, kube *kubeapi.Client, now kubeapi.Node) error {
	if err := lifecycle.K3sPath(now.Kubelet, u.plan.K3s.Version); err != nil {
		return err
	}

	if err := u.spared(ctx, kube); err != nil {
		return err
	}

	// Pods outlive a restart of K3s, but not every kubelet keeps those of another minor version. A node by itself has no other
	// place for them.
	if lifecycle.Minor(now.Kubelet, u.plan.K3s.Version) && len(u.plan.Nodes()) > 1 {
		d := rollout.Drain{Kube: kube, Node: u.node.Name, Bound: u.plan.DrainTimeout, Say: u.say}
		if err := d.Run(ctx); err != nil {
			return err
		}

		if err := d.Recheck(ctx, func(ctx context.Context) error { return u.spared(ctx, kube) }); err != nil {
			return err
		}
	}

	u.say(fmt.Sprintf("%s: K3s %s becomes %s", u.node.Name, now.Kubelet, u.plan.K3s.Version))

	return u.tell(ctx, *u.plan.K3s)
}

// spared waits until etcd can do without this node's member for a while. A server by itself has no choice.
func (u *k3sUpgrade) spared(ctx context.Context, kube *kubeapi.Client) error {
	servers := u.plan.ControlPlanes()
	if u.node.Role != plan.ControlPlane || len(servers) == 1 {
		return nil
	}

	return rollout.WaitHealthy(ctx, u.plan, u.say, "etcd to do without "+u.node.Name, func(ctx context.Context) error {
		nodes, err := kube.Nodes(ctx)
		if err != nil {
			return err
		}

		ready := 0

		for _, m := range serversOf(u.plan, u.known).members(ctx, nodes) {
			if m.Name != u.node.Name && m.Problem == "" {
				ready++
			}
		}

		if need := lifecycle.Needed(len(servers)); ready < need {
			return lifecycle.Refusal{
				Rule:   fmt.Sprintf("etcd needs %d other servers that are ready, and %d are", need, ready),
				Remedy: "see to the others first, then run 'pulumi up' again",
			}
		}

		return nil
	})
}

// tell writes what is wanted where the node looks for it. What went wrong before counts no longer.
func (u *k3sUpgrade) tell(ctx context.Context, wanted plan.PlannedK3s) error {
	if err := u.identities.CheckNow(ctx, u.node); err != nil {
		return err
	}

	machine, there, err := u.proxmox.Find(ctx, u.node.VMID)
	if err == nil && !there {
		err = fmt.Errorf("there is no VM with VMID %d", u.node.VMID)
	}

	if err == nil {
		err = u.proxmox.WriteGuestFile(ctx, machine, k3s.FatalFile, "\n")
	}

	if err == nil {
		err = u.proxmox.WriteGuestFile(ctx, machine, k3s.WantedFile, k3s.Wanted(&wanted))
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

	kube, now, err := u.running(short)
	if err != nil || now.Kubelet == u.plan.K3s.Version || !now.Ready {
		return nil //nolint:nilerr // it is on its way
	}

	before := *u.plan.K3s
	before.Version, before.Checksum = now.Kubelet, ""

	return errors.Join(u.tell(ctx, before), kube.Uncordon(ctx, u.node.Name))
}
