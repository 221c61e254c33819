package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// Outage says why a member of etcd may not be taken down for a while, nil when it may: no other may be unwell, and a change
// that Talos refuses while it would cost the quorum is not begun. A lone control plane may go: etcd stands still meanwhile.
func Outage(members []Member, name string, effect Effect) error {
	var unwell []string

	voters := 0

	for _, m := range members {
		switch {
		case m.Learner:
			unwell = append(unwell, m.String()+" is joining etcd and has no vote yet")

			continue
		case m.Name != name && m.Problem != "":
			unwell = append(unwell, fmt.Sprintf("the etcd member %s is not healthy (%s)", m, m.Problem))
		}

		voters++
	}

	switch {
	case len(unwell) > 0:
		return Refusal{strings.Join(unwell, ", "), "repair it first, then run 'pulumi up' again"}
	case voters == 2 && effect == Upgrade:
		return Refusal{
			"etcd has two members, and Talos upgrades none of them: the other could not go on alone", "add a control plane, or remove one, first",
		}
	default:
		return nil
	}
}

// Dispensable says why a member of which nothing is known may not be taken down, nil when it may: where etcd goes on and too few
// of the others are well, it is what etcd goes on with.
func Dispensable(members []Member, name string) error {
	_, well := votes(slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Name == name }))
	voters := Voters(members)

	if well == 0 || well >= Needed(voters) {
		return nil
	}

	return Refusal{
		fmt.Sprintf("%d of the other members of etcd are healthy, and %d are needed", well, Needed(voters)), "repair the others first, then run 'pulumi up' again",
	}
}

// Voters counts the members that have a vote.
func Voters(members []Member) int {
	all, _ := votes(members)

	return all
}
