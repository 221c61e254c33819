package lifecycle

import (
	"fmt"
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
		return Refusal{strings.Join(unwell, ", "), "see to it first, then run 'pulumi up' again"}
	case voters == 2 && effect == Upgrade:
		return Refusal{
			"etcd has two members, and Talos upgrades none of them: the other could not go on alone", "add a control plane, or remove one, first",
		}
	default:
		return nil
	}
}

// Voters counts the members that have a vote.
func Voters(members []Member) int {
	all, _ := votes(members)

	return all
}
