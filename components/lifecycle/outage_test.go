package lifecycle

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOutage(t *testing.T) {
	a, b, c := Member{Name: "a"}, Member{Name: "b"}, Member{Name: "c"}
	ill, learner := Member{Name: "c", Problem: "no leader"}, Member{Address: "10.0.0.3", Learner: true}

	for name, test := range map[string]struct {
		members []Member
		effect  Effect
		refused string
	}{
		"three":            {members: []Member{a, b, c}, effect: Upgrade},
		"itself is unwell": {members: []Member{{Name: "a", Problem: "no leader"}, b, c}, effect: Reboot},
		"alone":            {members: []Member{a}, effect: Upgrade},
		"one of two":       {members: []Member{a, b}, effect: Reboot},
		"another is unwell": {
			members: []Member{a, b, ill}, effect: Reboot,
			refused: "the etcd member c is not healthy (no leader); repair it first, then run 'pulumi up' again",
		},
		"one joins": {
			members: []Member{a, b, learner}, effect: Reboot,
			refused: "the member at 10.0.0.3 is joining etcd and has no vote yet; repair it first, then run 'pulumi up' again",
		},
		"an upgrade of one of two": {
			members: []Member{a, b}, effect: Upgrade,
			refused: "etcd has two members, and Talos upgrades none of them: the other could not go on alone; add a control plane, or remove one, first",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Outage(test.members, "a", test.effect)
			if test.refused == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.refused)
			}
		})
	}

	assert.Equal(t, 2, Voters([]Member{a, b, learner}))
}
