// Package etcd has the rules of its quorum: which members may leave, and which may stop for a while. It is pure.
package etcd

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/spec"
)

// Voters counts the members that have a vote.
func Voters(members []Member) int {
	all, _ := votes(members)

	return all
}

// Member is a member of etcd.
type Member struct {
	ID uint64
	// Name is the node's; empty for one that has not started yet.
	Name string
	// Address is how the other members reach it.
	Address string
	// Learner has no vote yet.
	Learner bool
	// Problem says what is wrong with it; empty when nothing is.
	Problem string
}

// String is how messages call the member.
func (m Member) String() string {
	if m.Name == "" {
		return "the member at " + m.Address
	}

	return m.Name
}

// full says that the member has raised the alarm that its space is used up.
func (m Member) full() bool { return strings.Contains(m.Problem, "alarm:NOSPACE") }

// alarm says why etcd takes no writes, and what helps, where the member tells of such an alarm.
func (m Member) alarm() error {
	switch {
	case m.full():
		return spec.Blocked(
			fmt.Sprintf("etcd takes no writes, because %s is out of space (%s)", m, m.Problem),
			"run 'talosctl etcd defrag' for each control plane, then 'talosctl etcd alarm disarm' for one, "+
				"and 'pulumi up' again",
		)
	case !strings.Contains(m.Problem, "alarm:CORRUPT"):
		return nil
	case strings.Contains(m.Problem, "memberID:"):
		return spec.Blocked(
			fmt.Sprintf("etcd takes no writes, because the data of %s differ from those of the other members (%s)", m,
				m.Problem),
			fmt.Sprintf("name %s in lifecycle.replace and lifecycle.forceRemove, and run 'pulumi up' again, which replaces its "+
				"data and ends the alarm; 'talosctl etcd alarm disarm' alone does not repair them", m),
		)
	default: // the alarm is of no member: too few have the same data
		return spec.Blocked(
			fmt.Sprintf("etcd takes no writes, because its members have different data, and no majority has the "+
				"same (%s)", m.Problem),
			"restore a snapshot with cluster.recoverFrom",
		)
	}
}

// QuorumSize is how many of so many voting members must agree.
func QuorumSize(voters int) int { return voters/2 + 1 }

// Led says that one of the voting members has a leader, by its own word: etcd has its quorum. One whose data may be
// wrong does not count: where that is so of all, a snapshot is what helps.
func Led(members []Member) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return !m.Learner && (m.Problem == "" || m.full()) })
}

// TakesWrites says that etcd has its quorum, and no alarm that keeps it from taking writes.
func TakesWrites(members []Member) bool {
	return Led(members) && !slices.ContainsFunc(members, func(m Member) bool { return m.alarm() != nil })
}

// votes counts the voting members, and those of them that are healthy.
func votes(members []Member) (all, healthy int) {
	for _, m := range members {
		if m.Learner {
			continue
		}

		all++

		if m.Problem == "" {
			healthy++
		}
	}

	return all, healthy
}

// QuorumText says what is left of etcd while one of so many voting members is unavailable.
func QuorumText(voters int) string {
	need := QuorumSize(voters)

	s := fmt.Sprintf("%d of %d, %d needed", voters-1, voters, need)
	if voters-1 < need {
		s += ": no quorum"
	}

	return s
}

// CheckDisruption says why a member of etcd may not be taken down for a while, nil when it may: no other may be
// unhealthy, none of two may go while more are planned, and a change that Talos refuses while it would cost the quorum
// is not begun. A lone control plane may go: etcd stands still meanwhile. planned are the names of all control planes
// of the plan.
func CheckDisruption(members []Member, planned []string, name string, effect impact.Effect) error {
	var unhealthy []string

	voters := 0

	for _, m := range members {
		switch {
		case m.Learner:
			unhealthy = append(unhealthy, m.String()+" is joining etcd and has no vote yet")

			continue
		case m.alarm() != nil:
			return m.alarm()
		case m.Name != name && m.Problem != "":
			unhealthy = append(unhealthy, fmt.Sprintf("the etcd member %s is not healthy (%s)", m, m.Problem))
		}

		voters++
	}

	missing := missingMembers(members, planned, name)

	switch {
	case len(unhealthy) > 0:
		return spec.Blocked(strings.Join(unhealthy, ", "), "repair it first, then run 'pulumi up' again")
	case voters == 2 && len(planned) > 2 && len(missing) > 0 && effect.Down():
		return MissingError{Names: missing, Node: name, Planned: len(planned)}
	case voters == 2 && effect == impact.EffectUpgrade:
		return spec.Blocked(
			"etcd has two members, and Talos upgrades neither of them: the other one alone has no quorum",
			"add a control plane, or remove one, first",
		)
	default:
		return nil
	}
}

// missingMembers are planned control planes that are no members; none where the node itself is none: etcd does without
// it.
func missingMembers(members []Member, planned []string, name string) (missing []string) {
	isMember := func(name string) bool {
		return slices.ContainsFunc(members, func(m Member) bool { return m.Name == name })
	}

	if !isMember(name) {
		return nil
	}

	return slices.DeleteFunc(slices.Clone(planned), isMember)
}

// MissingError is why one of two members may not be taken down: others are planned, and are no members.
type MissingError struct {
	// Names are the missing ones.
	Names []string
	// Node would be taken down.
	Node string
	// Planned is how many control planes there are in the plan.
	Planned int
}

// Error says what helps. What the operator does last always ends it: with two planned control planes, one of two may
// go.
func (e MissingError) Error() string {
	names := strings.Join(e.Names, ", ")

	return spec.Blocked(
		fmt.Sprintf("etcd has only two of its %d planned members (missing: %s), and no quorum while %s is unavailable",
			e.Planned, names, e.Node),
		fmt.Sprintf("let %s join first: undo the other changes, run 'pulumi up', then make the other changes "+
			"again; what does not join is named in lifecycle.replace, and also in lifecycle.forceRemove if it does not "+
			"answer, or taken out of the configuration", names),
	).Error()
}

// CanStop says why a member of which nothing is known may not be taken down, nil when it may: where etcd goes on and
// too few of the others are healthy, it is what etcd goes on with.
func CanStop(members []Member, name string) error {
	_, healthy := votes(slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Name == name }))
	voters := Voters(members)

	if healthy == 0 || healthy >= QuorumSize(voters) {
		return nil
	}

	return spec.Blocked(
		fmt.Sprintf("%d of the other members of etcd are healthy, and %d are needed", healthy, QuorumSize(voters)),
		"repair the others first, then run 'pulumi up' again",
	)
}
