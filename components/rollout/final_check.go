package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// FinalCheck is the last check of a cluster in a run: nodes that were replaced have rejoined, no node stays cordoned
// for a reason that is gone, and nodes have the labels and taints that they cannot give themselves. A run that was
// interrupted, or whose change was reverted, may have left a node cordoned that nothing else happens to.
type FinalCheck struct {
	Scope

	System System
}

// Run waits until the check passes. A preview says which labels and taints would change.
func (f FinalCheck) Run(ctx context.Context) error {
	switch {
	case f.Plan.Teardown:
		return nil
	case f.DryRun:
		return f.labeler().preview(ctx)
	}

	// What runs after a change can only warn. The node may well be cordoned.
	if name := f.Limiter.FailedNode(); name != "" {
		return fmt.Errorf("%s failed: see the messages above; fix it, then run 'pulumi up' again", name)
	}

	if err := f.Limiter.WaitReplaced(ctx, f.Plan.ReadyTimeout, f.Progress); err != nil {
		return err
	}

	// A cluster that does not answer is no reason for an update to fail that has nothing to do with it.
	shortCtx, cancel := context.WithTimeout(ctx, f.Plan.SettleTimeout)
	defer cancel()

	var nodes []kubeapi.Node

	kube, err := f.System.Kubernetes(shortCtx)
	if err == nil {
		nodes, err = kube.Nodes(shortCtx)
	}

	if err != nil {
		f.Warn(fmt.Sprintf("could not determine whether an earlier run has left a node cordoned, and whether "+
			"labels and taints are as configured: %v", err))

		return nil
	}

	missing := f.warnOfMissing(shortCtx, kube, nodes)
	f.warnOfVersions(nodes)

	for _, n := range nodes {
		if !n.Ours || !f.planned(n) {
			continue
		}

		if err := f.uncordon(ctx, kube, n.Name); err != nil {
			return err
		}
	}

	return f.labeler().set(ctx, kube, nodes, missing)
}

// warnOfMissing warns of planned nodes that are not in Kubernetes, and of control planes that are not in etcd, and
// returns those that are not in Kubernetes. No step of an update fails for them. Those that were set up in this run may
// still be joining, and those in lifecycle.forceRemove are known to be dead.
func (f FinalCheck) warnOfMissing(ctx context.Context, kube *kubeapi.Client, nodes []kubeapi.Node) (missing []string) {
	members, err := f.System.EtcdMembers(ctx, kube)
	// An empty list is one that is not known.
	listed := err == nil && len(members) > 0

	for _, n := range f.Plan.Nodes() {
		if f.Inventory == nil || !f.Inventory.Exists(n) || f.Limiter.isJoining(n.Name) ||
			f.Plan.DeclaredDead(n.Name) {
			continue
		}

		switch {
		case !slices.ContainsFunc(nodes, func(found kubeapi.Node) bool { return found.Name == n.Name }):
			missing = append(missing, n.Name)

			f.Warn(n.Name + " is not in Kubernetes, so it runs no pods, and its labels and taints are not set. Bring it " +
				"back, or, to recreate it, name it in lifecycle.replace, and also in lifecycle.forceRemove if it does not " +
				"answer; then run 'pulumi up' again")
		case listed && n.Role == spec.RoleControlPlane && !slices.Contains(members, n.Name):
			f.Warn(n.Name + " is in Kubernetes, but not a member of etcd, which can lose fewer members than planned. To " +
				"recreate it, name it in lifecycle.replace, then run 'pulumi up' again")
		}
	}

	return missing
}

// warnOfVersions warns of nodes that run other versions than configured. The state has the configured ones of a node
// whose upgrade was interrupted and then reverted, so no later update changes it.
func (f FinalCheck) warnOfVersions(nodes []kubeapi.Node) {
	if f.Plan.Apply == spec.ApplyStaged { // what is staged runs after the next reboot
		return
	}

	for _, n := range nodes {
		if !f.planned(n) || f.Limiter.isJoining(n.Name) {
			continue
		}

		runs, configured, key := otherVersion(f.Plan, n)
		if runs == "" {
			continue
		}

		f.Warn(fmt.Sprintf("%s runs %s, and %s is %s. Unless this update left the node out (--target), "+
			"an upgrade of it was interrupted and then reverted: set %s to the version of the interrupted upgrade and run "+
			"'pulumi up', or name the node in lifecycle.replace, which recreates it", n.Name, runs, key, configured, key))
	}
}

// otherVersion is what a node runs in place of what is configured, and the key of that; empty: it runs what is
// configured, or does not report it.
func otherVersion(p *plan.Plan, n kubeapi.Node) (runs, configured, key string) {
	if p.K3s != nil {
		if n.Kubelet == "" || n.Kubelet == p.K3s.Version {
			return "", "", ""
		}

		return "K3s " + n.Kubelet, p.K3s.Version, "cluster.versions.k3s"
	}

	if talos, is := strings.CutPrefix(n.System, "Talos ("); is && talos != p.Talos+")" {
		return "Talos " + strings.TrimSuffix(talos, ")"), p.Talos, "cluster.versions.talos"
	}

	if n.Kubelet != "" && n.Kubelet != p.Kubernetes {
		return "Kubernetes " + n.Kubelet, p.Kubernetes, "cluster.versions.kubernetes"
	}

	return "", "", ""
}

func (f FinalCheck) labeler() labeler { return labeler{f.Scope, f.System} }

// planned says that a node is one of the plan.
func (f FinalCheck) planned(found kubeapi.Node) bool {
	return slices.ContainsFunc(f.Plan.Nodes(), func(n plan.Node) bool { return n.Name == found.Name })
}

// uncordon uncordons a node that an earlier run has cordoned, when it is ready.
func (f FinalCheck) uncordon(ctx context.Context, kube *kubeapi.Client, name string) error {
	if err := kube.WaitReady(ctx, name, "", f.Plan.ReadyTimeout, f.Progress); err != nil {
		return fmt.Errorf("%s is still cordoned by an earlier run: %w; fix it, then run 'pulumi up' again", name, err)
	}

	if err := kube.Uncordon(ctx, name); err != nil {
		return fmt.Errorf("%s is still cordoned by an earlier run, and cannot be uncordoned: %w", name, err)
	}

	f.Progress(name + " is uncordoned")

	return nil
}
