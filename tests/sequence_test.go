package tests

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/chaos/sequence"
)

// sequenceSample are the seeds of the sequences of changes that the tests run: nodes that die, updates that are killed,
// VMs that get more memory, an extension that is added. The command runs any number of them:
// go run ./tests/chaos/changes --seeds 200.
var sequenceSample = []uint64{10, 23}

// TestSequences changes clusters one change after the other while things go wrong, and holds that each change did to
// each node what the preview's table and a model of its own said, that etcd never lost its quorum, and that nodes went
// down in turns.
func TestSequences(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	var results []sequence.Result

	many := sequence.Many{
		Engine: e, Dir: t.TempDir(), Seeds: sequenceSample, Steps: 3, Parallel: len(sequenceSample), Log: newOutput(t),
		Results: func(r sequence.Result) { results = append(results, r) },
	}

	require.NoError(t, many.Run(t.Context()))
	require.Len(t, results, len(sequenceSample))

	for _, r := range results {
		assert.Empty(t, r.Failed, "seed %d: go run ./tests/chaos/changes --seed %d --steps 3", r.Seed, r.Seed)
	}
}
