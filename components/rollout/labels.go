package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/kubeapi"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// hosts are where the VMs of nodes are now, by VMID; those on hosts that do not answer are left out.
func (f FinalCheck) hosts(ctx context.Context) (map[int]string, error) {
	if f.Plan.Region == "" {
		return map[int]string{}, nil
	}

	all := map[int]string{}

	vms, err := f.Identities.VMs(ctx)
	for _, v := range vms {
		if !v.Silent {
			all[v.ID] = v.Host
		}
	}

	return all, err
}

// warnOfUnknown names the nodes whose hosts are not known, and why if that is known.
func (f FinalCheck) warnOfUnknown(nodes []string, err error) {
	if len(nodes) == 0 {
		return
	}

	reason := ""
	if err != nil {
		reason = ": " + err.Error()
	}

	f.Warn("the Proxmox VE hosts of " + strings.Join(nodes, ", ") + " are not known, so their labels " +
		corev1.LabelTopologyZone + " stay as they are" + reason)
}

// labelsOf are the labels, taints and annotations that the program gives a node with an administrator's credentials.
// Talos has such credentials itself on control planes, sets annotations on all nodes, and is not told where it runs.
func (f FinalCheck) labelsOf(n plan.Node, host string) kubeapi.NodeLabels {
	var want kubeapi.NodeLabels

	switch {
	case f.Plan.Distribution == spec.DistributionK3s:
		want = kubeapi.NodeLabels{Labels: n.Labels, Taints: n.TaintList(), Annotations: n.Annotations}
	case n.Role == spec.RoleWorker:
		want = kubeapi.NodeLabels{
			Labels: n.RestrictedLabels(), Taints: n.TaintList(), Restricted: plan.RestrictedLabel,
		}
	}

	want.ProviderID = f.Plan.ProviderID(n)

	if topology := f.Plan.Topology(host); topology != nil {
		if host == "" {
			delete(topology, corev1.LabelTopologyZone)
			want.Unknown = []string{corev1.LabelTopologyZone}
		}

		maps.Copy(topology, want.Labels)
		want.Labels = topology
	}

	return want
}

// labelled are the nodes that have, or are to have, labels and taints of the program.
func (f FinalCheck) labelled(ctx context.Context, seen []kubeapi.Node) []labelledNode {
	var (
		all     []labelledNode
		unknown []string
	)

	hosts, err := f.hosts(ctx)

	for _, n := range f.Plan.Nodes() {
		at := slices.IndexFunc(seen, func(s kubeapi.Node) bool { return s.Name == n.Name })
		if at >= 0 && f.Plan.Region != "" && hosts[n.VMID] == "" {
			unknown = append(unknown, n.Name)
		}

		want := f.labelsOf(n, hosts[n.VMID])
		if len(want.Labels)+len(want.Taints)+len(want.Annotations) > 0 || at >= 0 && seen[at].Labelled {
			all = append(all, labelledNode{n, want, at >= 0})
		}
	}

	f.warnOfUnknown(unknown, err)

	return all
}

type labelledNode struct {
	plan.Node

	want kubeapi.NodeLabels
	// registered says that Kubernetes has the node.
	registered bool
}

// setLabels brings the labels and taints of all nodes in line. New nodes are waited for.
func (f FinalCheck) setLabels(ctx context.Context, kube *kubeapi.Client, seen []kubeapi.Node) error {
	for _, n := range f.labelled(ctx, seen) {
		if !n.registered && f.Inventory.Exists(n.Node) {
			f.Warn(n.Name + " is not in Kubernetes, so its labels and taints are not set; run 'pulumi up' when it is")

			continue
		}

		if !n.registered {
			if err := kube.WaitReady(ctx, n.Name, "", f.Plan.ReadyTimeout, f.Progress); err != nil {
				return fmt.Errorf("the labels and taints of %s are not set: %w; fix it, then run 'pulumi up' again", n.Name, err)
			}
		}

		found, err := kube.SetLabels(ctx, n.Name, n.want, false)
		if err != nil {
			return fmt.Errorf("the labels and taints of %s are not set: %w", n.Name, err)
		}

		for _, change := range found.Changes {
			f.Progress(n.Name + ": " + settingOf(change).String())
		}

		f.warnOfForeign(n.Name, found)
	}

	return nil
}

// previewLabels says what becomes of the labels and taints of nodes. It asks no cluster where Proxmox VE was not asked,
// and without an answer it says nothing: what changes in resources is shown all the same.
func (f FinalCheck) previewLabels(ctx context.Context) error {
	if f.Inventory == nil || f.Inventory.AbsentVMIDs() == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	var seen []kubeapi.Node

	kube, err := f.System.Kubernetes(ctx)
	if err == nil {
		seen, err = kube.Nodes(ctx)
	}

	if err != nil {
		return nil //nolint:nilerr // see above
	}

	for _, n := range f.labelled(ctx, seen) {
		found, err := kube.SetLabels(ctx, n.Name, n.want, true)
		if err != nil {
			continue // it has not registered yet
		}

		f.warnOfForeign(n.Name, found)

		row := impact.NodeImpact{
			Node: n.Name, Pool: n.Pool, Role: string(n.Role), Effect: impact.EffectLive, Why: "labels and taints", Labels: true,
		}
		for _, change := range found.Changes {
			row.Settings = append(row.Settings, settingOf(change))
		}

		if len(row.Settings) == 0 {
			continue
		}

		if err := f.Preview(row); err != nil {
			return err
		}
	}

	return nil
}

func (f FinalCheck) warnOfForeign(node string, found kubeapi.LabelChanges) {
	for _, foreign := range found.Foreign {
		if foreign.Path == kubeapi.ProviderID {
			f.Warn(fmt.Sprintf("%s has the provider ID %s, which cannot be changed to %s: replace the node for it "+
				"(lifecycle.replace), or leave it", node, foreign.Before, foreign.After))

			continue
		}

		f.Warn(fmt.Sprintf("%s has %s with the value %s, which was not set by this program and is not changed to "+
			"%s. Remove it with kubectl, then run 'pulumi up' again", node, foreign.Path, foreign.Before,
			foreign.After))
	}
}

func settingOf(c kubeapi.LabelChange) impact.Setting {
	return impact.Setting{Path: c.Path, Before: c.Before, After: c.After}
}
