package etcd

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func voters(names ...string) []Member {
	var all []Member
	for i, name := range names {
		all = append(all, Member{ID: uint64(i + 1), Name: name, Address: fmt.Sprintf("10.0.0.%d", i+1)})
	}

	return all
}

func TestMemberRemoval(t *testing.T) {
	sick := func(members []Member, name, problem string) []Member {
		for i := range members {
			if members[i].Name == name {
				members[i].Problem = problem
			}
		}

		return members
	}

	const teardown = "the last control plane cannot be removed: etcd would be lost with it; " +
		"add two control planes first, then replace or remove it; or, " +
		"to destroy the whole cluster, set lifecycle.teardown to true and run 'pulumi up', " +
		"then 'TALOS_PROXMOX_DESTROY=1 pulumi destroy --run-program'"

	for _, c := range []struct {
		name string
		MemberRemoval
		want string
	}{
		{"5 to 3", MemberRemoval{Members: voters("a", "b", "c", "d", "e"), Leaving: []string{"d", "e"}}, ""},
		{
			"5 to 2",
			MemberRemoval{Members: voters("a", "b", "c", "d", "e"), Leaving: []string{"c", "d", "e"}},
			"2 of the 5 members of etcd would stay, and 3 are needed; remove at most 2 at a time",
		},
		{"3 to 2", MemberRemoval{Members: voters("a", "b", "c"), Leaving: []string{"b"}}, ""},
		{
			"3 to 1",
			MemberRemoval{Members: voters("a", "b", "c"), Leaving: []string{"b", "c"}},
			"1 of the 3 members of etcd would stay, and 2 are needed; remove at most 1 at a time",
		},
		{
			"2 to 1",
			MemberRemoval{Members: voters("a", "b"), Leaving: []string{"b"}},
			"1 of the 2 members of etcd would stay, and 2 are needed; add a control plane first",
		},
		{"the last", MemberRemoval{Members: voters("a"), Leaving: []string{"a"}}, teardown},
		{"all", MemberRemoval{Members: voters("a", "b", "c"), Leaving: []string{"a", "b", "c"}}, teardown},
		{
			"no member leaves",
			MemberRemoval{Members: sick(voters("a", "b", "c"), "b", "no leader"), Leaving: []string{"d"}},
			"",
		},
		{
			"another is not healthy",
			MemberRemoval{
				Members: sick(voters("a", "b", "c"), "b", "no leader"),
				Leaving: []string{"c"},
			},
			"the etcd member b is not healthy (no leader); repair it first, then run 'pulumi up' again",
		},
		{
			"it is dead",
			MemberRemoval{Members: sick(voters("a", "b", "c"), "c", "connection refused"), Leaving: []string{"c"}},
			"the etcd member c is not healthy (connection refused); repair it first, or, if it is dead, name it in " +
				"lifecycle.forceRemove; " +
				"then run 'pulumi up' again",
		},
		{"it is known to be dead", MemberRemoval{
			Members: sick(voters("a", "b", "c"), "c", "connection refused"),
			Leaving: []string{"c"}, Dead: []string{"c"},
		}, ""},
		{"two are dead of five", MemberRemoval{
			Members: sick(sick(voters("a", "b", "c", "d", "e"), "c", "x"), "d", "x"),
			Leaving: []string{"c", "d"}, Dead: []string{"c", "d"},
		}, ""},
		{
			"two are dead of three",
			MemberRemoval{
				Members: sick(sick(voters("a", "b", "c"), "b", "x"), "c", "x"),
				Leaving: []string{"c"}, Dead: []string{"b", "c"},
			},
			"1 of the 3 members of etcd are healthy, and 2 are needed: etcd cannot remove a member; start one " +
				"again, or restore a " +
				"snapshot",
		},
		{
			"a dead one stays",
			MemberRemoval{
				Members: sick(voters("a", "b", "c"), "b", "x"), Leaving: []string{"c"},
				Dead: []string{"b"},
			},
			"the etcd member b is not healthy (x); repair it first, then run 'pulumi up' again",
		},
		{
			"the data of one that stays differ",
			MemberRemoval{Members: sick(voters("a", "b", "c"), "b", "memberID:2 alarm:CORRUPT"), Leaving: []string{"c"}},
			"etcd takes no writes, because the data of b differ from those of the other members (memberID:2 alarm:CORRUPT); " +
				"name b in lifecycle.replace and lifecycle.forceRemove, and run 'pulumi up' again, which replaces its data and " +
				"ends the alarm; 'talosctl etcd alarm disarm' alone does not repair them",
		},
		{"the data of one that leaves differ", MemberRemoval{
			Members: sick(voters("a", "b", "c"), "b", "memberID:2 alarm:CORRUPT"),
			Leaving: []string{"b"}, Dead: []string{"b"},
		}, ""},
		{
			"one is joining",
			MemberRemoval{Members: append(voters("a", "b", "c"),
				Member{ID: 9, Address: "10.0.0.9", Learner: true}), Leaving: []string{"c"}},
			"the member at 10.0.0.9 is joining etcd and has no vote yet; repair it first, then run 'pulumi up' again",
		},
		{"a learner leaves", MemberRemoval{
			Members: append(voters("a", "b"), Member{ID: 9, Name: "c", Learner: true}),
			Leaving: []string{"c"},
		}, ""},
		{"no member", MemberRemoval{Leaving: []string{"c"}}, "etcd has no voting member; make sure that the " +
			"cluster is up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want == "" {
				assert.NoError(t, c.Evaluate())
			} else {
				assert.EqualError(t, c.Evaluate(), c.want)
			}
		})
	}
}

// TestRemovalKeepsQuorum plays what is allowed, in any order: etcd has its quorum at every instant, and what was
// allowed as a whole is allowed at every step.
func TestRemovalKeepsQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d MemberRemoval

		for i := range rapid.IntRange(1, 9).Draw(t, "members") {
			m := Member{ID: uint64(i), Name: fmt.Sprintf("n%d", i), Learner: rapid.IntRange(0, 9).Draw(t, "learner") == 0}

			if rapid.IntRange(0, 4).Draw(t, "problem") == 0 {
				m.Problem = "down"

				if rapid.Bool().Draw(t, "known") {
					d.Dead = append(d.Dead, m.Name)
				}
			}

			if rapid.Bool().Draw(t, "leaves") {
				d.Leaving = append(d.Leaving, m.Name)
			}

			d.Members = append(d.Members, m)
		}

		if d.Evaluate() != nil {
			return
		}

		if len(d.Leaving) == 0 || !slices.ContainsFunc(d.Members, d.leaves) {
			return
		}

		for _, name := range rapid.Permutation(d.Leaving).Draw(t, "order") {
			// To let a member go takes a healthy majority.
			healthy, voters := 0, 0

			for _, m := range d.Members {
				if !m.Learner {
					voters++

					if m.Problem == "" {
						healthy++
					}
				}
			}

			if healthy < QuorumSize(voters) {
				t.Fatalf("%d of %d are healthy when %s leaves: %+v", healthy, voters, name, d)
			}

			if err := d.Evaluate(); err != nil {
				t.Fatalf("allowed as a whole, refused at %s: %v", name, err)
			}

			d.Members = slices.DeleteFunc(slices.Clone(d.Members), func(m Member) bool { return m.Name == name })
			d.Leaving = slices.DeleteFunc(slices.Clone(d.Leaving), func(n string) bool { return n == name })
		}
	})
}

func TestQuorumText(t *testing.T) {
	assert.Equal(t, "0 of 1, 1 needed: no quorum", QuorumText(1))
	assert.Equal(t, "1 of 2, 2 needed: no quorum", QuorumText(2))
	assert.Equal(t, "4 of 5, 3 needed", QuorumText(5))
}
