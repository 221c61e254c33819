package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/lifecycle"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/rollout"
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

	kube, err := lasting(ctx, without(r.controlPlanes(l), l.Target), l.credentials, r.plan, r.say)
	if err != nil {
		return err
	}

	dead := r.silence(ctx, l)

	if dead != nil && !l.forced {
		if _, there, err := kube.Node(ctx, l.Name); err == nil && !there && l.in(members) < 0 {
			// It had left when a run was cut off.
			return nil
		}

		return lifecycle.Refusal{
			Rule:   fmt.Sprintf("it does not answer at %s (%v)", l.Address, dead),
			Remedy: "bring it back, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again",
		}
	}

	d := rollout.Drain{Kube: kube, Node: l.Name, Bound: r.plan.DrainTimeout, Say: r.say}
	if err := r.drain(ctx, l, d, dead); err != nil {
		return err
	}

	if l.role == plan.ControlPlane {
		err = d.Recheck(ctx, func(ctx context.Context) (err error) {
			members, err = r.judge(ctx, l)

			return err
		})
		if err != nil {
			return err
		}
	}

	if member := l.in(members); member >= 0 {
		if err := r.unvote(ctx, l, members[member], dead); err != nil {
			return errors.Join(err, d.Undo(ctx))
		}
	}

	if err := kube.DeleteNode(ctx, l.Name); err != nil {
		return fmt.Errorf("Kubernetes does not forget its node: %w", err)
	}

	if l.planned != nil {
		r.limiter.Replace(l.Name, l.role, func(ctx context.Context) (string, error) { return r.missing(ctx, l) })
	}

	return r.reset(ctx, l, dead)
}

// otherwise is what becomes of a step of a removal that has failed. A node that is named in lifecycle.forceRemove is
// removed nevertheless, by the next stronger step, and that is said; of any other, the error says that there is this
// way.
func (r *removal) otherwise(ctx context.Context, l leaver, failed error, stronger string) error {
	switch {
	case failed == nil:
		return nil
	case ctx.Err() != nil:
		return failed
	case !l.forced:
		return forceable(failed)
	default:
		r.warn(fmt.Sprintf("%s: %v: %s, for it is named in lifecycle.forceRemove", l.Name, failed, stronger))

		return nil
	}
}

func forceable(failed error) error {
	return fmt.Errorf(
		"%w; if the node is broken, name it in lifecycle.forceRemove, and it is removed without that", failed)
}

// drain takes the pods off the node. Those of a dead one are lost with it, as are those that do not leave one that is
// named in lifecycle.forceRemove.
func (r *removal) drain(ctx context.Context, l leaver, d rollout.Drain, dead error) error {
	if !l.forced {
		return r.otherwise(ctx, l, d.Run(ctx), "")
	}

	if err := r.otherwise(ctx, l, d.Cordon(ctx), "it is removed without"); err != nil || dead != nil {
		return err
	}

	return r.otherwise(ctx, l, d.Evict(ctx), "its pods are given up")
}

// in is which of the members of etcd the node is; -1: none.
func (l leaver) in(members []lifecycle.Member) int {
	return slices.IndexFunc(members, func(m lifecycle.Member) bool {
		return m.Name == l.Name || m.Address == l.Address
	})
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
func (r *removal) silence(ctx context.Context, l leaver) error {
	if l.forced {
		return talosapi.Answers(ctx, l.Target, l.credentials)
	}

	return silence(ctx, l.Target, l.credentials, min(r.plan.SettleTimeout, r.plan.NodeTimeout), r.say)
}

// unvote takes the node's member out of etcd, and looks whether it is gone: a reply may have been lost. A member that
// cannot leave by itself is removed by another.
func (r *removal) unvote(ctx context.Context, l leaver, m lifecycle.Member, dead error) error {
	r.say(l.Name + " leaves etcd")

	others := without(r.controlPlanes(l), l.Target)
	left := dead

	if dead == nil {
		ctx, cancel := context.WithTimeout(ctx, r.plan.NodeTimeout)
		left = talosapi.LeaveEtcd(ctx, l.Target, l.credentials)

		cancel()
	}

	if left != nil && l.forced {
		if dead == nil {
			r.warn(fmt.Sprintf(
				"%v: another control plane removes its member, for it is named in lifecycle.forceRemove", left))
		}

		for _, t := range others {
			if left = talosapi.RemoveEtcdMember(ctx, t, l.credentials, m); left == nil {
				break
			}
		}
	}

	err := wait.Until(ctx, r.plan.SettleTimeout, r.say, func(context.Context) (string, error) {
		members, listed := talosapi.EtcdMembers(ctx, others, l.credentials)

		switch {
		case listed != nil:
			return fmt.Sprintf("etcd without %s (%v)", l.Name, listed), nil
		case !slices.ContainsFunc(members, func(now lifecycle.Member) bool { return now.ID == m.ID }):
			return "", nil
		case left != nil:
			return "", left
		default:
			return "etcd to let " + l.Name + " go", nil
		}
	})

	switch {
	case err == nil:
		if err := talosapi.EndAlarms(ctx, others, l.credentials, m); err != nil {
			r.warn(err.Error())
		}

		return nil
	case l.forced:
		return err // nothing is stronger
	default:
		return r.otherwise(ctx, l, err, "")
	}
}

// reset makes the node forget the cluster. Its VM goes next, so nobody waits for it to be done.
func (r *removal) reset(ctx context.Context, l leaver, dead error) error {
	if dead != nil {
		return nil
	}

	err := wait.Until(ctx, r.plan.SettleTimeout, r.say, func(ctx context.Context) (string, error) {
		err := talosapi.Reset(ctx, l.Target, l.credentials)
		if err == nil || talosapi.Answers(ctx, l.Target, l.credentials) != nil {
			// When it does not answer any more, the reply was lost, not the request.
			return "", nil
		}

		return fmt.Sprintf("%s to reset (%v)", l.Name, err), nil
	})

	return r.otherwise(ctx, l, err, "its VM is deleted as it is")
}
