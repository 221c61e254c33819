package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/chaos/faults"
)

// sweepSample is how many cases of the fault sweep the tests run, of each of the small stacks. The whole sweep is
// a command: go run ./tests/chaos/sweep.
const sweepSample = 6

// sources are the small stacks of each boot source. An undisturbed life of the larger ones alone takes half a minute of
// a core, too long for each run of the tests.
var sources = []string{"template", "iso", "disk"}

// leaveOut says which stacks a test does not run, as a test that is skipped, and the families of cases that its sample
// has none of.
func leaveOut(t *testing.T, command, log string) {
	t.Helper()

	for line := range strings.Lines(log) {
		if strings.Contains(line, "the sample has no case of ") {
			t.Log(strings.TrimSpace(line))
		}
	}

	for _, name := range faults.Stacks() {
		if !slices.Contains(sources, name) {
			t.Run(name, func(t *testing.T) { t.Skipf("left out: go run ./tests/chaos/sweep --stack %s%s", name, command) })
		}
	}
}

// TestSweep breaks a call in each stage of a stack's life, and holds that the stack comes out of it as if nothing had
// happened.
func TestSweep(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	var results []faults.Result

	log := newOutput(t)
	sweep := faults.Sweep{
		Engine: e, Dir: t.TempDir(), Seed: 2026, Sample: sweepSample, Log: log, Stacks: sources,
		Results: func(r faults.Result) { results = append(results, r) },
	}

	require.NoError(t, sweep.Run(t.Context()))
	assert.Len(t, results, sweepSample*len(sources))

	for _, r := range results {
		if believed(r.Case) {
			assert.Equal(t, faults.Failed, r.Verdict, "%s: the provider has changed: mend reliability.md", r.Case)
		} else {
			assert.NotEqual(t, faults.Failed, r.Verdict, "%s\n%s", r.Case, r.Why)
		}
	}

	leaveOut(t, "", log.String())
}

// believed says that the provider takes a proxy's page for the success of a deletion that is answered with nothing.
func believed(c faults.Case) bool {
	return c.Effect == faults.Page && c.Lasts && c.Stage == faults.Destroy &&
		strings.HasPrefix(c.Call.Pattern, "DELETE /cluster/mapping/")
}

// TestSweepLocked: Proxmox VE refuses to resize the disk of a VM, or to start the VM, because it is locked. The same
// update, run again, ends as an undisturbed one.
func TestSweepLocked(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	var results []faults.Result

	sweep := faults.Sweep{
		Engine: e, Dir: t.TempDir(), Seed: 2026, Log: newOutput(t), Stacks: []string{"template"},
		Stages: []faults.Stage{faults.Create, faults.ScaleUp},
		Only: func(c faults.Case) bool {
			return c.Effect == faults.Locked &&
				(strings.HasSuffix(c.Call.Pattern, "/resize") || strings.HasSuffix(c.Call.Pattern, "/status/start"))
		},
		Results: func(r faults.Result) { results = append(results, r) },
	}

	require.NoError(t, sweep.Run(t.Context()))
	assert.NotEmpty(t, results)

	for _, r := range results {
		assert.Contains(t, []faults.Verdict{faults.Absorbed, faults.Again}, r.Verdict, "%s\n%s", r.Case, r.Why)
	}
}

// TestSweepPage: a proxy answers in the place of Proxmox VE when a VM is given its settings, and the provider takes that
// for success. The program finds it, and what its message says helps.
func TestSweepPage(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	var results []faults.Result

	sweep := faults.Sweep{
		Engine: e, Dir: t.TempDir(), Seed: 2026, Log: newOutput(t), Stacks: []string{"template"},
		Only: func(c faults.Case) bool {
			return c.Effect == faults.Page && !c.Last && strings.HasPrefix(c.Call.Pattern, "PUT ") &&
				strings.HasSuffix(c.Call.Pattern, "/config")
		},
		Results: func(r faults.Result) { results = append(results, r) },
	}

	require.NoError(t, sweep.Run(t.Context()))

	took := map[faults.Stage]faults.Verdict{}

	for _, r := range results {
		took[r.Case.Stage] = r.Verdict
		assert.NotEmpty(t, r.Said, "%s went unnoticed", r.Case)
		assert.NotEqual(t, faults.Failed, r.Verdict, "%s\n%s", r.Case, r.Why)
	}

	assert.Equal(t, map[faults.Stage]faults.Verdict{
		faults.Create: faults.Deleted, faults.ScaleUp: faults.Deleted, faults.Update: faults.Again,
	}, took)
}

// killSample is how often the tests kill the pulumi CLI; the command has a flag for it: go run ./tests/chaos/sweep
// --kills 50.
const killSample = 3

// TestKills kills the CLI in the middle of a stage, once for each of the small stacks, and does what the documentation
// tells then.
func TestKills(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	var killed []faults.Killed

	kills := faults.Kills{
		Engine: e, Dir: t.TempDir(), Stacks: sources, First: 101, Count: killSample, Log: newOutput(t),
		Results: func(k faults.Killed) { killed = append(killed, k) },
	}

	require.NoError(t, kills.Run(t.Context()))
	assert.Len(t, killed, killSample)

	for _, k := range killed {
		assert.NotEqual(t, faults.Failed, k.Verdict, "%s, %s at %s\n%s", k.Kill, k.Stage, k.Kind, k.Why)
	}

	leaveOut(t, " --kills 10", "")
}
