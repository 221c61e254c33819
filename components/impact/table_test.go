package impact

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTable(t *testing.T) {
	settings := []Setting{{Path: "machine.token", Secret: true}, {Path: "machine.sysctls.x", Before: "1", After: "2"}}
	rows := []NodeImpact{
		{
			Node: "c-1", Role: "controlplane", Pool: "control", Now: "Talos v1.11.6", Wanted: "Talos v1.12.4",
			Effect: EffectUpgrade, Quorum: "2 of 3, 2 needed",
			Why: "Talos v1.11.6 becomes v1.12.4", Settings: settings,
		},
		{
			Node: "c-2", Role: "controlplane", Pool: "control", Effect: EffectUpgrade, Quorum: "2 of 3, 2 needed",
			Refused: "one\ntwo", Settings: settings,
		},
		{Node: "w-1", Role: "worker", Pool: "worker", Effect: EffectReboot},
		{Node: "w-2", Role: "worker", Pool: "worker", Effect: EffectUnknown, Why: "it does not answer"},
		{Node: "w-3", Role: "worker", Pool: "worker", Effect: EffectNone},
	}
	AssignOrder(rows, Limits{MaxUnavailable: 1})

	var out strings.Builder
	require.NoError(t, Table(&out, rows))
	assert.Equal(t, `NODE  ROLE          NOW            WANTED         EFFECT   ORDER  QUORUM            WHY
c-1   controlplane  Talos v1.11.6  Talos v1.12.4  upgrade  1      2 of 3, 2 needed  Talos v1.11.6 becomes v1.12.4
c-2   controlplane  -              -              upgrade  2      2 of 3, 2 needed  REFUSED: one; two
w-1   worker        -              -              reboot   3      -                 -
w-2   worker        -              -              unknown  -      -                 it does not answer
w-3   worker        -              -              none     -      -                 -

Configuration of c-1, c-2:
  machine.token: changes (secret)
  machine.sysctls.x: 1 becomes 2
`, out.String())

	assert.Equal(t, "c-1: upgrade, for Talos v1.11.6 becomes v1.12.4; etcd meanwhile: 2 of 3, 2 needed", rows[0].String())
	assert.Equal(t, "c-2: upgrade; etcd meanwhile: 2 of 3, 2 needed; refused: one\ntwo", rows[1].String())
}

// TestAssignOrder: every node that goes away has one turn, control planes go alone and first, no turn has more workers
// than are allowed, and a canary has its pool's first turn for itself; those that leave do so after all others.
func TestAssignOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var rows []NodeImpact

		effect := rapid.SampledFrom([]Effect{
			EffectNone, EffectLive, EffectCreate, EffectReboot, EffectUpgrade, EffectReplace,
			EffectUnknown, EffectRemove,
		})
		for i := range rapid.IntRange(0, 5).Draw(t, "control planes") {
			rows = append(rows, NodeImpact{
				Node: fmt.Sprint("c", i), Role: controlPlane, Pool: "control",
				Effect: effect.Draw(t, "effect"),
			})
		}

		for i := range rapid.IntRange(0, 12).Draw(t, "workers") {
			pool := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pool")
			rows = append(rows, NodeImpact{
				Node: fmt.Sprint("w", i), Role: "worker", Pool: pool,
				Effect: effect.Draw(t, "effect"),
			})
		}

		limits := Limits{MaxUnavailable: rapid.IntRange(1, 4).Draw(t, "at most"), Canary: rapid.Bool().Draw(t, "canary")}
		AssignOrder(rows, limits)

		last, turns := 0, map[int][]NodeImpact{}

		for _, r := range rows {
			away := slices.Contains([]Effect{EffectReboot, EffectUpgrade, EffectReplace, EffectRemove}, r.Effect)
			require.Equal(t, away, r.Order > 0, r)

			if away {
				turns[r.Order] = append(turns[r.Order], r)
				last = max(last, r.Order)
			}
		}

		leaving, workers, pools := false, false, map[string]bool{}

		for turn := 1; turn <= last; turn++ {
			in := turns[turn]
			require.NotEmpty(t, in, "no turn is left out")

			for _, r := range in {
				require.Equal(t, in[0].Effect == EffectRemove, r.Effect == EffectRemove)
			}

			if in[0].Effect == EffectRemove && !leaving {
				leaving, workers = true, false
			}

			require.Equal(t, leaving, in[0].Effect == EffectRemove, "those that leave are the last")

			fresh := map[string]int{}

			for _, r := range in {
				if r.Role == controlPlane {
					require.False(t, workers, "control planes go first")
					require.Len(t, in, 1)

					continue
				}

				workers = true

				if !pools[r.Pool] {
					fresh[r.Pool]++
				}
			}

			require.LessOrEqual(t, len(in), limits.MaxUnavailable)

			for pool, n := range fresh {
				pools[pool] = true

				if limits.Canary && !leaving {
					require.Equal(t, 1, n)
				}
			}
		}
	})
}
