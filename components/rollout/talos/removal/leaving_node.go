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

// leavingNode is a node whose configuration is about to be deleted, and its VM after it.
type leavingNode struct {
	talosapi.Target

	// vmResource is the name of the resource of its VM.
	vmResource  string
	role        spec.Role
	credentials talosapi.Credentials
	// forced says that it is named in lifecycle.forceRemove: what it does not do is done without it.
	forced bool
	// planned is the node as the plan has it; nil: the node has left the plan.
	planned *plan.Node
}

// readLeavingNode reads the node that leaves from the configuration that was applied: nothing else knows a node that is
// not in the plan.
func (r *Removals) readLeavingNode(ctx context.Context, args *pulumi.ResourceHookArgs) (leavingNode, error) {
	l := leavingNode{
		Target:      talosapi.Target{Address: hookutil.String(args.OldInputs, "node")},
		vmResource:  strings.TrimSuffix(args.Name, tokens.ConfigurationSuffix) + tokens.VMSuffix,
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

	l.forced = r.Plan.DeclaredDead(l.Name)

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

// Removals decides whether a node may lose its machine, and takes it out of the cluster before it does.
type Removals struct {
	*cluster.Cluster

	// bootstrap ensures that etcd is not forgotten with its last control plane.
	bootstrap *bootstrap.Bootstrap
	// abandoned says that etcd was found to have lost its quorum, and control planes are going: what is asked of those
	// while their VMs are deleted proves nothing.
	abandoned atomic.Bool
}

// New returns the Removals of a cluster.
func New(c *cluster.Cluster, b *bootstrap.Bootstrap) *Removals {
	return &Removals{Cluster: c, bootstrap: b}
}

// tolerateIfForced is what becomes of a step of a removal that has failed. A node that is named in
// lifecycle.forceRemove is removed nevertheless, by what is done instead, and that is said; of any other, the error
// says that there is this way.
func (r *Removals) tolerateIfForced(ctx context.Context, l leavingNode, failed error, instead string) error {
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return failed
	case !l.forced:
		return rollout.SuggestForce(failed)
	default:
		r.Warn(fmt.Sprintf("%s: %v: %s, because it is named in lifecycle.forceRemove", l.Name, failed, instead))

		return nil
	}
}

// memberIndexIn is which of the members of etcd the node is; -1: none. Only one that has not started yet has no name:
// at the address may be another node by now.
func (l leavingNode) memberIndexIn(members []etcd.Member) int {
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
	removal := etcd.MemberRemoval{Members: members, Dead: r.Plan.ForceRemove}

	for _, m := range members {
		stays := slices.ContainsFunc(r.Plan.ControlPlanes(), func(n plan.Node) bool { return r.isMember(m, n) })
		if m.Name != "" && (!stays || m.Name == l.Name) {
			removal.Leaving = append(removal.Leaving, m.Name)
		}
	}

	return removal
}

// waitRemovable waits for control planes that are on their way into etcd, and then says whether this one may leave.
func (r *Removals) waitRemovable(ctx context.Context, l leavingNode) (members []etcd.Member, err error) {
	err = rollout.WaitRemovable(ctx, r.Plan, r.Progress, func() (_ etcd.MemberRemoval, awaited string, err error) {
		members, err = talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)

		return r.memberRemoval(l, members), r.awaitedVoters(l, members), err
	})

	return members, err
}

// awaitedVoters names planned control planes without a vote yet, other than the one that leaves. One that is known to
// be dead does not come.
func (r *Removals) awaitedVoters(l leavingNode, members []etcd.Member) string {
	var names []string

	for _, n := range r.Plan.ControlPlanes() {
		if n.Name == l.Name || r.Plan.DeclaredDead(n.Name) {
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

// removeEtcdMember takes the node's member out of etcd, and looks whether it is gone: a reply may have been lost. A
// member that cannot leave by itself, as that of a node that is unreachable, is removed by another.
func (r *Removals) removeEtcdMember(
	ctx context.Context, l leavingNode, m etcd.Member, whyUnreachable error,
) error {
	r.Progress(l.Name + " leaves etcd")

	others := cluster.Without(r.Peers(l.Target, l.role), l.Target)
	leaveErr := whyUnreachable

	if whyUnreachable == nil {
		ctx, cancel := context.WithTimeout(ctx, r.Plan.NodeTimeout)
		leaveErr = talosapi.LeaveEtcd(ctx, l.Target, l.credentials)

		cancel()
	}

	if leaveErr != nil && l.forced {
		if whyUnreachable == nil {
			r.Warn(fmt.Sprintf(
				"%v: another control plane removes its member, because it is named in lifecycle.forceRemove", leaveErr))
		}

		for _, t := range others {
			if leaveErr = talosapi.RemoveEtcdMember(ctx, t, l.credentials, m); leaveErr == nil {
				break
			}
		}
	}

	err := wait.Until(ctx, r.Plan.SettleTimeout, r.Progress, func(context.Context) error {
		members, listErr := talosapi.EtcdMembers(ctx, others, l.credentials)

		switch {
		case listErr != nil:
			return wait.For("etcd without %s (%v)", l.Name, listErr)
		case !slices.ContainsFunc(members, func(now etcd.Member) bool { return now.ID == m.ID }):
			return nil
		case leaveErr != nil:
			return leaveErr
		default:
			return wait.For("etcd to remove the member of %s", l.Name)
		}
	})

	switch {
	case err == nil:
		if err := talosapi.EndAlarms(ctx, others, l.credentials, m); err != nil {
			r.Warn(err.Error())
		}

		return nil
	case l.forced:
		return err // nothing is stronger
	default:
		return r.tolerateIfForced(ctx, l, err, "")
	}
}
