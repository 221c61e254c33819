// Package removal takes a node out of its cluster before it loses its machine, or says why it may not lose it.
package removal

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/bootstrap"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// Removals decides whether a node may lose its machine, and takes it out of the cluster before it does.
type Removals struct {
	*cluster.Cluster

	// bootstrap holds that etcd is not forgotten with its last control plane.
	bootstrap *bootstrap.Bootstrap
	// abandoned says that etcd was found to have lost its quorum, and control planes are going: what is asked of those
	// while their VMs are deleted proves nothing.
	abandoned atomic.Bool
}

// New returns the Removals of a cluster.
func New(c *cluster.Cluster, b *bootstrap.Bootstrap) *Removals {
	return &Removals{Cluster: c, bootstrap: b}
}

// leavingNode is a node whose configuration is about to be deleted, and its VM after it.
type leavingNode struct {
	talosapi.Target

	// vm is the name of the resource of its VM.
	vm          string
	role        spec.Role
	credentials talosapi.Credentials
	// forced says that it is named in lifecycle.forceRemove: what it does not do is done without it.
	forced bool
	// planned is the node as the plan has it; nil: it has it no more.
	planned *plan.Node
}

// readLeavingNode reads the node that leaves from the configuration that was applied: nothing else knows a node that is
// not in the plan.
func (r *Removals) readLeavingNode(ctx context.Context, args *pulumi.ResourceHookArgs) (leavingNode, error) {
	l := leavingNode{
		Target:      talosapi.Target{Address: hookutil.String(args.OldInputs, "node")},
		vm:          strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix) + tokens.VMSuffix,
		credentials: r.credentialsFor(ctx, cluster.CredentialsOf(args.OldInputs)),
	}

	applied, err := machineconfig.Applied(hookutil.String(args.OldInputs, "machineConfigurationInput"),
		hookutil.Strings(args.OldInputs, "configPatches"))
	if err != nil {
		return l, fmt.Errorf("%s: the configuration of the node cannot be read: %w", args.Name, err)
	}

	l.Name, l.role = machineconfig.Identity(applied)

	if n, there := r.Nodes[args.Name]; there {
		l.planned, l.Name = &n, n.Name
	}

	if l.Name == "" {
		l.Name = strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix)
	}

	l.forced = slices.Contains(r.Plan.ForceRemove, l.Name)

	return l, nil
}

// credentialsFor are those that the cluster has now. Those that a node was configured with may be long expired. They
// are good enough where the others are not known, as in a preview that renews them, or belong to another cluster.
func (r *Removals) credentialsFor(ctx context.Context, configured talosapi.Credentials) talosapi.Credentials {
	bound := r.Plan.NodeTimeout
	if r.DryRun {
		bound = wait.RequestTimeout
	}

	if now, known := r.Credentials.Get(ctx, bound); known && now.CA == configured.CA {
		return now
	}

	return configured
}

// recoversFromSnapshot says whether the node goes because etcd is lost: there is a snapshot to begin with, and the
// operator has named all control planes that have a machine.
func (r *Removals) recoversFromSnapshot(l leavingNode) bool {
	return r.Plan.RecoverFrom != "" && l.planned != nil && l.role == spec.RoleControlPlane &&
		!slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool {
			return !r.Inventory.AbsentVMIDs()[n.VMID] && !slices.Contains(r.Plan.Replace, n.Name)
		})
}

// memberIndex is which of the members of etcd the node is; -1: none. Only one that has not started yet has no name: at
// the address may be another node by now.
func (l leavingNode) memberIndex(members []etcd.Member) int {
	return slices.IndexFunc(members, func(m etcd.Member) bool {
		return m.Name == l.Name || m.Name == "" && m.Address == l.Address
	})
}

// isMember says whether a member of etcd is a node of the plan: by name, or, before it has started, by address.
func (r *Removals) isMember(m etcd.Member, n plan.Node) bool {
	return m.Name == n.Name || m.Name == "" && m.Address == r.Addresses.Get(n.Name)
}

// memberRemoval is what leaves etcd: the node, and all members that the plan does not have.
func (r *Removals) memberRemoval(l leavingNode, members []etcd.Member) etcd.MemberRemoval {
	d := etcd.MemberRemoval{Members: members, Dead: r.Plan.ForceRemove}

	for _, m := range members {
		stays := slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool { return r.isMember(m, n) })
		if m.Name != "" && (!stays || m.Name == l.Name) {
			d.Leaving = append(d.Leaving, m.Name)
		}
	}

	return d
}

// waitMayLeave waits for control planes that are on their way into etcd, and then says whether this one may leave.
func (r *Removals) waitMayLeave(ctx context.Context, l leavingNode) (members []etcd.Member, err error) {
	err = rollout.WaitRemovable(ctx, r.Plan, r.Progress, func() (_ etcd.MemberRemoval, awaited string, err error) {
		members, err = talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)

		return r.memberRemoval(l, members), r.awaitedVotes(l, members), err
	})

	return members, err
}

// awaitedVotes names planned control planes without a vote yet, other than the one that leaves. One that is known to be
// dead does not come.
func (r *Removals) awaitedVotes(l leavingNode, members []etcd.Member) string {
	var names []string

	for _, n := range r.Plan.ControlPlanes() {
		if n.Name == l.Name || slices.Contains(r.Plan.ForceRemove, n.Name) {
			continue
		}

		if !slices.ContainsFunc(members, func(m etcd.Member) bool { return r.isMember(m, n) && !m.Learner }) {
			names = append(names, n.Name)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return strings.Join(names, ", ") + " to get a vote in etcd"
}

// checkRejoined says what a node that was replaced still lacks.
func (r *Removals) checkRejoined(ctx context.Context, l leavingNode) error {
	kube, err := cluster.Kubernetes(ctx, cluster.Without(r.Peers(l.Target, l.role), l.Target), l.credentials)
	if err != nil {
		return wait.For("%v", err)
	}

	n, there, err := kube.Node(ctx, l.Name)
	if err != nil || !there || !n.Ready {
		return wait.For("%s to be ready in Kubernetes", l.Name)
	}

	if l.role != spec.RoleControlPlane {
		return nil
	}

	members, err := talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)
	if err != nil {
		return wait.For("etcd to answer")
	}

	if !slices.ContainsFunc(members, func(m etcd.Member) bool {
		return m.Name == l.Name && !m.Learner && m.Problem == ""
	}) {
		return wait.For("%s to be back in etcd", l.Name)
	}

	return nil
}
