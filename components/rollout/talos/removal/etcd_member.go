package removal

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/etcd"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
	"talos-proxmox/components/rollout/talos/cluster"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

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

// waitEtcdCanSpare waits for control planes that are on their way into etcd, and then says whether this one may leave.
func (r *Removals) waitEtcdCanSpare(ctx context.Context, l leavingNode) (members []etcd.Member, err error) {
	err = rollout.WaitRemovable(ctx, r.Plan, r.Progress, func() (_ etcd.MemberRemoval, awaited string, err error) {
		members, err = talosapi.EtcdMembers(ctx, r.Peers(l.Target, l.role), l.credentials)

		return r.memberRemoval(l, members), r.missingVotes(l, members), err
	})

	return members, err
}

// missingVotes names planned control planes without a vote yet, other than the one that leaves. One that is known to be
// dead does not come.
func (r *Removals) missingVotes(l leavingNode, members []etcd.Member) string {
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
