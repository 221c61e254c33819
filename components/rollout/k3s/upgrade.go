package k3s

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/impact"
	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/upgradepath"
	"talos-proxmox/components/wait"
)

// Upgrades go to another version of K3s.
type Upgrades struct {
	*Cluster

	rollout *rollout.Rollout
}

// Upgrade runs before the record of a node gets another version of K3s. On error the record keeps the old one, so the
// next update tries again. Servers come one after the other, and agents when all servers have it: their resources
// depend on each other so.
func (u *Upgrades) Upgrade(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	n, err := u.node(args)
	if err != nil {
		return err
	}

	from := versionOf(args.OldInputs)
	if from == u.Plan.K3s.Version {
		return nil
	}

	if err := u.Versions.CheckNotNewer(ctx, u.Scope, n, "cluster.versions.k3s", u.Plan.K3s.Version); err != nil {
		return err
	}

	blocked := u.checkRemovedFeatures(ctx, n, from)

	if u.DryRun {
		return u.previewUpgrade(n, from, blocked)
	}

	if blocked != nil {
		return fmt.Errorf("%s is not upgraded: %w", n.Name, blocked)
	}

	return u.rollout.Disrupt(ctx, n, &nodeUpgrade{disruptedNode{u.Cluster, n}}, n.Name+" is not upgraded")
}

// versionOf is what is noted of a node.
func versionOf(inputs resource.PropertyMap) string {
	joined := hookutil.Unwrap(inputs["input"])
	if !joined.IsObject() {
		return ""
	}

	return hookutil.String(joined.ObjectValue(), "version")
}

// previewUpgrade says in a preview what will become of the node. A refusal is an error there, too.
func (u *Upgrades) previewUpgrade(n plan.Node, from string, blocked error) error {
	to := u.Plan.K3s.Version
	row := impact.NodeImpact{
		Node: n.Name, Pool: n.Pool, Role: string(n.Role), Now: "K3s " + from, Wanted: "K3s " + to,
		Effect: impact.EffectUpgrade, Why: "K3s " + from + " becomes " + to,
		Limits: impact.Limits{MaxUnavailable: u.Plan.MaxUnavailable, Canary: u.Plan.Canary},
	}

	if n.Role == spec.RoleControlPlane {
		row.Quorum = etcd.QuorumText(len(u.Plan.ControlPlanes()))
	}

	blocked = row.Refuse(errors.Join(upgradepath.CheckK3s(from, to), blocked))

	return errors.Join(blocked, u.Program.Preview(row))
}

// nodeUpgrade is one node on its way to another version.
type nodeUpgrade struct{ disruptedNode }

// Evaluate finds out what is left to be done, also by hand.
func (u *nodeUpgrade) Evaluate(ctx context.Context) (rollout.Work, error) {
	now, err := u.runningNode(ctx)
	if err != nil || now.Kubelet == u.Plan.K3s.Version {
		return rollout.Work{}, err
	}

	if err := upgradepath.CheckK3s(now.Kubelet, u.Plan.K3s.Version); err != nil {
		return rollout.Work{}, err
	}

	install := func(ctx context.Context) error {
		u.Progress(fmt.Sprintf("%s: K3s %s becomes %s", u.node.Name, now.Kubelet, u.Plan.K3s.Version))

		return u.requestVersion(ctx, *u.Plan.K3s)
	}

	return rollout.Work{
		Effect: impact.EffectUpgrade,
		// Pods outlive a restart of K3s, but not every kubelet keeps those of another minor version.
		KeepPods:        !upgradepath.MinorDiffers(now.Kubelet, u.Plan.K3s.Version) || u.isOnlyNode(),
		DisruptiveSteps: []rollout.DisruptiveStep{{Effect: impact.EffectUpgrade, Do: install}},
	}, nil
}

// WaitRejoined waits until the node runs the version that is planned.
func (u *nodeUpgrade) WaitRejoined(ctx context.Context) error {
	// Kubernetes knows it: it has its etcd.
	check := &joinCheck{Cluster: u.Cluster, node: u.node, skipDatastore: true}

	if err := check.wait(ctx, u.Plan.UpgradeTimeout); err != nil {
		return errors.Join(err, u.keepVersion(context.WithoutCancel(ctx)))
	}

	return nil
}

// runningNode is what the node runs, as the first server that answers has it.
func (u *nodeUpgrade) runningNode(ctx context.Context) (now kubeapi.Node, err error) {
	err = wait.Until(ctx, u.Plan.NodeTimeout, u.Progress, func(ctx context.Context) error {
		var there bool

		kube, err := u.anyKubernetes(ctx)
		if err == nil {
			now, there, err = kube.Node(ctx, u.node.Name)
		}

		switch {
		case err != nil:
			return wait.For("%v", err)
		case !there:
			return errors.New("it is not in Kubernetes: start it again, or recreate it")
		default:
			return nil
		}
	})

	return now, err
}

// requestVersion writes what is wanted where the node looks for it. It clears the previous failure.
func (u *nodeUpgrade) requestVersion(ctx context.Context, wanted plan.PlannedK3s) error {
	if err := u.Identities.CheckNow(ctx, u.node); err != nil {
		return err
	}

	machine, err := u.vmOf(ctx, u.node)
	if err == nil {
		err = u.Proxmox.WriteGuestFile(ctx, machine, k3sconfig.FatalFile, "\n")
	}

	if err == nil {
		err = u.Proxmox.WriteGuestFile(ctx, machine, k3sconfig.WantedFile, k3sconfig.Requested(&wanted))
	}

	if err != nil {
		return fmt.Errorf("could not send it the version through its guest agent: %w",
			u.explainRefusal(err, permissions.WriteGuestFiles))
	}

	return nil
}

// keepVersion has a node that still runs its version go on with it: no upgrade is to happen to it later, when nothing
// watches it. The next update tries again.
func (u *nodeUpgrade) keepVersion(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, u.Plan.SettleTimeout)
	defer cancel()

	now, err := u.runningNode(short)
	if err != nil || now.Kubelet == u.Plan.K3s.Version || !now.Ready {
		return nil //nolint:nilerr // it is on its way
	}

	before := *u.Plan.K3s
	before.Version, before.Checksum, before.InstallChecksum = now.Kubelet, "", ""

	requested := u.requestVersion(ctx, before)

	kube, err := u.Kubernetes(ctx)
	if err == nil {
		err = kube.Uncordon(ctx, u.node.Name)
	}

	return errors.Join(requested, err)
}

// checkRemovedFeatures checks, before another minor version is installed, that the node starts with it: K3s ends with
// feature gates that are gone. User data configured the node once, so that its own file decides, not the plan. What
// cannot be checked is warned of, as are objects of APIs that are gone, once in a run.
func (c *Cluster) checkRemovedFeatures(ctx context.Context, n plan.Node, from string) error {
	to := c.Plan.Kubernetes
	if !upgradepath.MinorDiffers(from, c.Plan.K3s.Version) {
		return nil
	}

	c.checkedObjects.Do(func() { c.warnOfRemovedObjects(ctx, from, to) })

	text, err := c.configurationOf(ctx, n)

	var removed []string
	if err == nil {
		removed, err = k3sconfig.RemovedFeatures(text, to)
	}

	switch {
	case err != nil:
		c.Warn(fmt.Sprintf("could not check whether K3s %s starts on %s, because feature gates are unknown: %v",
			c.Plan.K3s.Version, n.Name, err))
	case len(removed) > 0:
		return fmt.Errorf("its %s has %s: K3s does not start with feature gates that Kubernetes %s does not know; remove "+
			"them there, on all nodes that have them, then run 'pulumi up' again", k3sconfig.ConfigFile,
			strings.Join(removed, ", "), to)
	}

	return nil
}

func (c *Cluster) warnOfRemovedObjects(ctx context.Context, from, to string) {
	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	var found []string

	from, _, _ = strings.Cut(from, "+")

	kube, err := c.anyKubernetes(ctx)
	if err == nil {
		found, err = kube.Removed(ctx, from, to)
	}

	if err != nil {
		found = []string{fmt.Sprintf("could not check whether the cluster uses APIs of Kubernetes that are removed in the "+
			"next version: %v", wait.Reason(err))}
	}

	for _, text := range found {
		c.Warn(text)
	}
}
