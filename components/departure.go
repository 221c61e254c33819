package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/talosapi"
	"talos-proxmox/components/wait"
)

// leave takes a node out of the cluster: its pods, its vote, its Node, its identity. Every step may be done already, by a run
// that was cut off.
func (r *removal) leave(ctx context.Context, l leaver) (err error) {
	var members []lifecycle.Member

	if l.role == plan.ControlPlane {
		if members, err = r.judge(ctx, l); err != nil {
			return err
		}
	}

	if len(members) > 0 {
		if err := r.backup.take(ctx, r.controlPlanes(l), l.credentials); err != nil {
			return err
		}
	}

	member := l.in(members)

	kube, err := lasting(ctx, without(r.controlPlanes(l), l.Target), l.credentials, r.plan, r.say)
	if err != nil {
		return err
	}

	forced := slices.Contains(r.plan.ForceRemove, l.Name)
	dead := r.silence(ctx, l, forced)

	if dead != nil && !forced {
		if _, there, err := kube.Node(ctx, l.Name); err == nil && !there && member < 0 {
			// It had left when a run was cut off.
			return nil
		}

		return lifecycle.Refusal{
			Rule:   fmt.Sprintf("it does not answer at %s (%v)", l.Address, dead),
			Remedy: "bring it back, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
		}
	}

	d := drain{kube, l.Name, r.plan.DrainTimeout, r.say}

	// Pods of a dead node are lost with it.
	if dead != nil {
		err = d.cordon(ctx)
	} else {
		err = d.run(ctx)
	}

	if err != nil {
		return err
	}

	if l.role == plan.ControlPlane {
		if err := d.recheck(ctx, func(ctx context.Context) error { members, err = r.judge(ctx, l); return err }); err != nil {
			return err
		}
	}

	if member = l.in(members); member >= 0 {
		if err := r.unvote(ctx, l, members[member], dead); err != nil {
			return errors.Join(err, kube.Uncordon(context.WithoutCancel(ctx), l.Name))
		}
	}

	if err := kube.DeleteNode(ctx, l.Name); err != nil {
		return fmt.Errorf("Kubernetes does not forget its node: %w", err)
	}

	if l.planned != nil {
		r.turns.leave(l.Name, l.role, func(ctx context.Context) (string, error) { return r.missing(ctx, l) })
	}

	return r.reset(ctx, l, dead)
}

// in is which of the members of etcd the node is; -1: none.
func (l leaver) in(members []lifecycle.Member) int {
	return slices.IndexFunc(members, func(m lifecycle.Member) bool { return m.Name == l.Name || m.Address == l.Address })
}

// judge waits for control planes that are on their way into etcd, and then says whether this one may leave.
func (r *removal) judge(ctx context.Context, l leaver) ([]lifecycle.Member, error) {
	var members []lifecycle.Member

	patience := wait.Patience{Bound: r.plan.SettleTimeout}

	err := wait.Until(ctx, r.plan.ReadyTimeout, r.say, func(context.Context) (string, error) {
		// Each member may take its time to answer.
		found, err := talosapi.EtcdMembers(ctx, r.controlPlanes(l), l.credentials)
		members = found

		if err == nil {
			if coming := r.coming(l, found); coming != "" {
				patience.Reset()

				return coming, nil
			}

			d := r.departure(l, found)
			if err := d.Counted(); err != nil {
				return "", err
			}

			err = d.Judge()
		}

		if err == nil || patience.Over() {
			return "", err
		}

		return "etcd: " + err.Error(), nil
	})

	return members, err
}

// coming are planned control planes without a vote yet, other than the one that leaves. One that is known to be dead does not
// come.
func (r *removal) coming(l leaver, members []lifecycle.Member) string {
	var names []string

	for _, n := range r.plan.ControlPlanes() {
		if n.Name == l.Name || slices.Contains(r.plan.ForceRemove, n.Name) {
			continue
		}

		if !slices.ContainsFunc(members, func(m lifecycle.Member) bool { return r.is(m, n) && !m.Learner }) {
			names = append(names, n.Name)
		}
	}

	if len(names) == 0 {
		return ""
	}

	return strings.Join(names, ", ") + " to get a vote in etcd"
}

// missing is what a node lacks that is made anew.
func (r *removal) missing(ctx context.Context, l leaver) (string, error) {
	kube, err := kubernetes(ctx, without(r.controlPlanes(l), l.Target), l.credentials)
	if err != nil {
		return err.Error(), nil //nolint:nilerr // it is waited for
	}

	n, there, err := kube.Node(ctx, l.Name)
	if err != nil || !there || !n.Ready {
		return l.Name + " to be ready in Kubernetes", nil //nolint:nilerr // it is waited for
	}

	if l.role != plan.ControlPlane {
		return "", nil
	}

	members, err := talosapi.EtcdMembers(ctx, r.controlPlanes(l), l.credentials)
	if err != nil {
		return "etcd to answer", nil
	}

	if !slices.ContainsFunc(members, func(m lifecycle.Member) bool { return m.Name == l.Name && !m.Learner && m.Problem == "" }) {
		return l.Name + " to be back in etcd", nil
	}

	return "", nil
}

// silence is why the node does not answer, nil when it does. One that is said to be dead is asked once.
func (r *removal) silence(ctx context.Context, l leaver, forced bool) error {
	if forced {
		return talosapi.Answers(ctx, l.Target, l.credentials)
	}

	return silence(ctx, l.Target, l.credentials, min(r.plan.SettleTimeout, r.plan.NodeTimeout), r.say)
}

// unvote takes the node's member out of etcd, and looks whether it is gone: a reply may have been lost.
func (r *removal) unvote(ctx context.Context, l leaver, m lifecycle.Member, dead error) error {
	r.say(l.Name + " leaves etcd")

	err := dead
	if dead == nil {
		ctx, cancel := context.WithTimeout(ctx, r.plan.NodeTimeout)
		err = talosapi.LeaveEtcd(ctx, l.Target, l.credentials)

		cancel()
	}

	others := without(r.controlPlanes(l), l.Target)

	if dead != nil {
		for _, t := range others {
			if err = talosapi.RemoveEtcdMember(ctx, t, l.credentials, m); err == nil {
				break
			}
		}
	}

	return wait.Until(ctx, r.plan.SettleTimeout, r.say, func(context.Context) (string, error) {
		members, listed := talosapi.EtcdMembers(ctx, others, l.credentials)

		switch {
		case listed != nil:
			return fmt.Sprintf("etcd without %s (%v)", l.Name, listed), nil
		case !slices.ContainsFunc(members, func(now lifecycle.Member) bool { return now.ID == m.ID }):
			return "", nil
		case err != nil:
			return "", err
		default:
			return "etcd to let " + l.Name + " go", nil
		}
	})
}

// reset makes the node forget the cluster. Its VM goes next, so nobody waits for it to be done.
func (r *removal) reset(ctx context.Context, l leaver, dead error) error {
	if dead != nil {
		return nil
	}

	return wait.Until(ctx, r.plan.SettleTimeout, r.say, func(ctx context.Context) (string, error) {
		err := talosapi.Reset(ctx, l.Target, l.credentials)
		if err == nil || talosapi.Answers(ctx, l.Target, l.credentials) != nil {
			// When it does not answer any more, the reply was lost, not the request.
			return "", nil
		}

		return fmt.Sprintf("%s to reset (%v)", l.Name, err), nil
	})
}
