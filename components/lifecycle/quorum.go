package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

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

// Needed is how many of so many voting members must agree.
func Needed(voters int) int { return voters/2 + 1 }

// Departure is the removal of members from etcd, judged as a whole before the first of them leaves.
type Departure struct {
	// Members are all that there are.
	Members []Member
	// Leaving are the names of those who go.
	Leaving []string
	// Dead are the names of those who need not be asked.
	Dead []string
}

// Refusal is why nodes may not leave, and what to do about it.
type Refusal struct{ Rule, Remedy string }

func (r Refusal) Error() string { return r.Rule + "; " + r.Remedy }

// Judge says why the members may not leave, nil when the first of them may. At no instant of what it allows is etcd below its
// quorum, whatever the order, as long as no other member fails.
func (d Departure) Judge() error {
	if err := d.Counted(); err != nil || !slices.ContainsFunc(d.Members, d.leaves) {
		return err
	}

	return d.unwell()
}

// Counted says whether enough voting members stay, however they are.
func (d Departure) Counted() error {
	voters := Voters(d.Members)
	stay := Voters(slices.DeleteFunc(slices.Clone(d.Members), d.leaves))

	switch need := Needed(voters); {
	case voters == 0:
		return Refusal{"etcd has no voting member", "see that the cluster is up"}
	case !slices.ContainsFunc(d.Members, d.leaves):
		return nil
	case stay == 0:
		return Refusal{
			"the last control plane never leaves: etcd would be lost with it",
			"to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', then 'pulumi destroy'",
		}
	case stay < need:
		return Refusal{fmt.Sprintf("%d of the %d members of etcd would stay, and %d are needed", stay, voters, need), AtMost(voters)}
	default:
		return nil
	}
}

// AtMost says what to do instead where too many of so many members would leave.
func AtMost(voters int) string {
	if most := voters - Needed(voters); most > 0 {
		return fmt.Sprintf("remove %d at most at once", most)
	}

	return "add a control plane first"
}

// Quorate says whether enough voting members are well for etcd to go on.
func (d Departure) Quorate() bool {
	all, well := votes(d.Members)

	return all > 0 && well >= Needed(all)
}

// votes counts the voting members, and those of them that are well.
func votes(members []Member) (all, well int) {
	for _, m := range members {
		if m.Learner {
			continue
		}

		all++

		if m.Problem == "" {
			well++
		}
	}

	return all, well
}

// unwell are the members in whose state no other may leave.
func (d Departure) unwell() error {
	var rules []string

	remedy := "repair it first, then run 'pulumi up' again"

	for _, m := range d.Members {
		switch {
		case m.Learner && !d.leaves(m):
			rules = append(rules, m.String()+" is joining etcd and has no vote yet")
		case m.Problem != "" && !(d.leaves(m) && slices.Contains(d.Dead, m.Name)):
			rules = append(rules, fmt.Sprintf("the etcd member %s is not healthy (%s)", m, m.Problem))

			if d.leaves(m) {
				remedy = "repair it first, or, if it is dead, name it in lifecycle.forceRemove; then run 'pulumi up' again"
			}
		}
	}

	if voters, healthy := votes(d.Members); healthy < Needed(voters) {
		return Refusal{
			fmt.Sprintf("%d of the %d members of etcd are healthy, and %d are needed: etcd removes no member", healthy, voters, Needed(voters)),
			"bring one back, or restore a snapshot",
		}
	}

	if len(rules) == 0 {
		return nil
	}

	return Refusal{strings.Join(rules, ", "), remedy}
}

func (d Departure) leaves(m Member) bool { return m.Name != "" && slices.Contains(d.Leaving, m.Name) }
