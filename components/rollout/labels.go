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

// labeler gives nodes the labels and taints that they cannot give themselves.
type labeler struct {
	Scope

	system System
}

// hostsByVMID is where the VMs of nodes are now, by VMID; those on hosts that do not answer are left out.
func (l labeler) hostsByVMID(ctx context.Context) (map[int]string, error) {
	if l.Plan.Region == "" {
		return map[int]string{}, nil
	}

	hosts := map[int]string{}

	vms, err := l.Identities.VMs(ctx)
	for _, v := range vms {
		if !v.Unreachable {
			hosts[v.ID] = v.Host
		}
	}

	return hosts, err
}

// warnOfUnknownHosts names the nodes whose hosts are not known, and why if that is known.
func (l labeler) warnOfUnknownHosts(nodes []string, err error) {
	if len(nodes) == 0 {
		return
	}

	reason := ""
	if err != nil {
		reason = ": " + err.Error()
	}

	l.Warn("the Proxmox VE hosts of " + strings.Join(nodes, ", ") + " are not known, so their labels " +
		corev1.LabelTopologyZone + " stay as they are" + reason)
}

// wantedLabels are the labels, taints and annotations that the program gives a node with an administrator's
// credentials. Talos has such credentials itself on control planes, sets annotations on all nodes, and is not told
// where it runs.
func (l labeler) wantedLabels(n plan.Node, host string) kubeapi.NodeLabels {
	var want kubeapi.NodeLabels

	switch {
	case l.Plan.Distribution == spec.DistributionK3s:
		want = kubeapi.NodeLabels{
			Labels: n.Labels, Taints: n.TaintList(), Annotations: n.Annotations,
			Registered: slices.Sorted(maps.Keys(n.OwnLabels())),
		}
	case n.Role == spec.RoleWorker:
		want = kubeapi.NodeLabels{
			Labels: n.RestrictedLabels(), Taints: n.TaintList(), Restricted: plan.RestrictedLabel,
		}
	}

	want.ProviderID = l.Plan.ProviderID(n)

	if topology := l.Plan.Topology(host); topology != nil {
		if host == "" {
			delete(topology, corev1.LabelTopologyZone)
			want.Unknown = []string{corev1.LabelTopologyZone}
		}

		maps.Copy(topology, want.Labels)
		want.Labels = topology
	}

	return want
}

// nodesToLabel are the nodes that have, or are to have, labels and taints of the program.
func (l labeler) nodesToLabel(ctx context.Context, registered []kubeapi.Node) []nodeToLabel {
	var (
		toLabel     []nodeToLabel
		withoutHost []string
	)

	hosts, err := l.hostsByVMID(ctx)

	for _, n := range l.Plan.Nodes() {
		at := slices.IndexFunc(registered, func(s kubeapi.Node) bool { return s.Name == n.Name })
		if at >= 0 && l.Plan.Region != "" && hosts[n.VMID] == "" {
			withoutHost = append(withoutHost, n.Name)
		}

		want := l.wantedLabels(n, hosts[n.VMID])
		if len(want.Labels)+len(want.Taints)+len(want.Annotations) > 0 || at >= 0 && registered[at].Labelled {
			toLabel = append(toLabel, nodeToLabel{n, want, at >= 0})
		}
	}

	l.warnOfUnknownHosts(withoutHost, err)

	return toLabel
}

// nodeToLabel is a node and the labels that it is to have.
type nodeToLabel struct {
	plan.Node

	want kubeapi.NodeLabels
	// registered says that Kubernetes has the node.
	registered bool
}

// set brings the labels and taints of all nodes in line. New nodes are waited for, and those that are known to be
// missing are left out.
func (l labeler) set(ctx context.Context, kube *kubeapi.Client, registered []kubeapi.Node, missing []string) error {
	for _, n := range l.nodesToLabel(ctx, registered) {
		if slices.Contains(missing, n.Name) {
			continue
		}

		if !n.registered && l.Inventory.Exists(n.Node) {
			l.Warn(n.Name + " is not in Kubernetes, so its labels and taints are not set; run 'pulumi up' when it is")

			continue
		}

		if !n.registered {
			if err := kube.WaitReady(ctx, n.Name, "", l.Plan.ReadyTimeout, l.Progress); err != nil {
				return fmt.Errorf("the labels and taints of %s are not set: %w; fix it, then run 'pulumi up' again", n.Name, err)
			}
		}

		changes, err := kube.SetLabels(ctx, n.Name, n.want, false)
		if err != nil {
			return fmt.Errorf("the labels and taints of %s are not set: %w", n.Name, err)
		}

		for _, change := range changes.Changes {
			l.Progress(n.Name + ": " + settingOf(change).String())
		}

		l.warnOfForeign(n.Name, changes)
	}

	return nil
}

// preview says what becomes of the labels and taints of nodes. It asks no cluster where Proxmox VE was not asked,
// and without an answer it says nothing: what changes in resources is shown all the same.
func (l labeler) preview(ctx context.Context) error {
	if l.Inventory == nil || l.Inventory.AbsentVMIDs() == nil {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, wait.RequestTimeout)
	defer cancel()

	var registered []kubeapi.Node

	kube, err := l.system.Kubernetes(ctx)
	if err == nil {
		registered, err = kube.Nodes(ctx)
	}

	if err != nil {
		return nil //nolint:nilerr // see above
	}

	for _, n := range l.nodesToLabel(ctx, registered) {
		changes, err := kube.SetLabels(ctx, n.Name, n.want, true)
		if err != nil {
			continue // it has not registered yet
		}

		l.warnOfForeign(n.Name, changes)

		row := impact.NodeImpact{
			Node: n.Name, Pool: n.Pool, Role: string(n.Role), Effect: impact.EffectLive, Why: "labels and taints", Labels: true,
		}
		for _, change := range changes.Changes {
			row.Settings = append(row.Settings, settingOf(change))
		}

		if len(row.Settings) == 0 {
			continue
		}

		if err := l.Preview(row); err != nil {
			return err
		}
	}

	return nil
}

func (l labeler) warnOfForeign(node string, changes kubeapi.LabelChanges) {
	for _, foreign := range changes.Foreign {
		if foreign.Path == kubeapi.ProviderID {
			l.Warn(fmt.Sprintf("%s has the provider ID %s, which cannot be changed to %s: replace the node for it "+
				"(lifecycle.replace), or leave it", node, foreign.Before, foreign.After))

			continue
		}

		l.Warn(fmt.Sprintf("%s has %s with the value %s, which was not set by this program and is not changed "+
			"to %s. Remove it with kubectl, then run 'pulumi up' again", node, foreign.Path, foreign.Before, foreign.After))
	}
}

func settingOf(c kubeapi.LabelChange) impact.Setting {
	return impact.Setting{Path: c.Path, Before: c.Before, After: c.After}
}
