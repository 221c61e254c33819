package etcd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/impact"
)

func TestCheckDisruption(t *testing.T) {
	a, b, c := Member{Name: "a"}, Member{Name: "b"}, Member{Name: "c"}
	ill, learner := Member{Name: "c", Problem: "no leader"}, Member{Address: "10.0.0.3", Learner: true}

	const missing = "etcd has only two of its 3 planned members (missing: c), and no quorum while a is unavailable; let " +
		"c join first: undo the other changes, run 'pulumi up', then make the other changes again; what does not " +
		"join is named in lifecycle.replace, and also in lifecycle.forceRemove if it does not answer, or taken out of the " +
		"configuration"

	for name, test := range map[string]struct {
		members []Member
		planned []string
		effect  impact.Effect
		refused string
	}{
		"three":               {members: []Member{a, b, c}, effect: impact.EffectUpgrade},
		"itself is unhealthy": {members: []Member{{Name: "a", Problem: "no leader"}, b, c}, effect: impact.EffectReboot},
		"alone":               {members: []Member{a}, effect: impact.EffectUpgrade},
		"one of two":          {members: []Member{a, b}, effect: impact.EffectReboot},
		"another is unhealthy": {
			members: []Member{a, b, ill}, effect: impact.EffectReboot,
			refused: "the etcd member c is not healthy (no leader); repair it first, then run 'pulumi up' again",
		},
		"one joins": {
			members: []Member{a, b, learner}, effect: impact.EffectReboot,
			refused: "the member at 10.0.0.3 is joining etcd and has no vote yet; repair it first, then run 'pulumi up' again",
		},
		"it is out of space itself": {
			members: []Member{{Name: "a", Problem: "memberID:1 alarm:NOSPACE"}, b, c}, effect: impact.EffectReboot,
			refused: "etcd takes no writes, because a is out of space (memberID:1 alarm:NOSPACE); run 'talosctl etcd defrag' for " +
				"each control plane, then 'talosctl etcd alarm disarm' for one, and 'pulumi up' again",
		},
		"its own data differ": {
			members: []Member{{Name: "a", Problem: "memberID:1 alarm:CORRUPT"}, b, c}, effect: impact.EffectReboot,
			refused: "etcd takes no writes, because the data of a differ from those of the other members (memberID:1 " +
				"alarm:CORRUPT); name a in lifecycle.replace and lifecycle.forceRemove, and run 'pulumi up' again, which " +
				"replaces its data and ends the alarm; 'talosctl etcd alarm disarm' alone does not repair them",
		},
		"the data of all differ": {
			members: []Member{{Name: "a", Problem: "alarm:CORRUPT"}, {Name: "b", Problem: "alarm:CORRUPT"}},
			effect:  impact.EffectReboot,
			refused: "etcd takes no writes, because its members have different data, and no majority has the same " +
				"(alarm:CORRUPT); " +
				"restore a snapshot with cluster.recoverFrom",
		},
		"an upgrade of one of two": {
			members: []Member{a, b}, effect: impact.EffectUpgrade,
			refused: "etcd has two members, and Talos upgrades neither of them: the other one alone has no quorum; " +
				"add a control " +
				"plane, or remove one, first",
		},
		"one of two, and two are planned": {
			members: []Member{a, b}, planned: []string{"a", "b"}, effect: impact.EffectReboot,
		},
		"one of two of three": {
			members: []Member{a, b}, planned: []string{"a", "b", "c"}, effect: impact.EffectReboot, refused: missing,
		},
		"an upgrade of one of two of three": {
			members: []Member{a, b}, planned: []string{"a", "b", "c"}, effect: impact.EffectUpgrade, refused: missing,
		},
		"two of three, and it stays up": {
			members: []Member{a, b}, planned: []string{"a", "b", "c"}, effect: impact.EffectNone,
		},
		"one that is no member": {members: []Member{b, c}, planned: []string{"a", "b", "c"}, effect: impact.EffectReboot},
		"one of three of five": {
			members: []Member{a, b, c}, planned: []string{"a", "b", "c", "d", "e"}, effect: impact.EffectReboot,
		},
		"one that leaves counts": {
			members: []Member{a, b, {Name: "z"}}, planned: []string{"a", "b", "c"}, effect: impact.EffectReboot,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckDisruption(test.members, test.planned, "a", test.effect)
			if test.refused == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.refused)
			}
		})
	}

	assert.Equal(t, 2, Voters([]Member{a, b, learner}))
	assert.True(t, Led([]Member{{Name: "a", Problem: "memberID:1 alarm:NOSPACE"}}))
	assert.False(t, Led([]Member{{Name: "a", Problem: "alarm:CORRUPT"}, {Name: "b", Problem: "alarm:CORRUPT"}}),
		"a snapshot may be restored")
}
