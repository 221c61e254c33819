package tests

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/chaos/faults"
)

const (
	// sweepSample is how many cases of the fault sweep the tests run, of each stack: one in each stage of the larger
	// ones. The whole sweep is a command: go run ./tests/chaos/sweep.
	sweepSample = 8
	// smallSample is the same of the small ones, which have fewer stages.
	smallSample = 6
	// sweepSeed orders the cases.
	sweepSeed = 2026
)

// kills are seeds that end the pulumi CLI in the middle of a stage of each stack. There is a command for more: go run
// ./tests/chaos/sweep --kills 50.
var kills = map[string]uint64{"template": 102, "iso": 103, "disk": 101, "ha": 104, "k3s": 105}

// TestSweep breaks a call in each stage of a stack's life, and holds that the stack comes out of it as if nothing had
// happened. Then it kills the CLI, and does what the documentation says to do then.
func TestSweep(t *testing.T) {
	t.Parallel()

	for _, stack := range faults.Stacks() {
		t.Run(stack, func(t *testing.T) {
			t.Parallel()

			e, err := theEngine()
			require.NoError(t, err)

			log := newOutput(t)
			sweep := faults.Sweep{
				Engine: e, Dir: t.TempDir(), Seed: sweepSeed, Sample: smallSample, Log: log, Stacks: []string{stack},
				Besides: func(c faults.Case) bool { return stack == "template" && (locked(c) || settings(c)) },
				Results: func(r faults.Result) { requireMended(t, r) },
			}

			if len(faults.StagesOf(stack)) > smallSample {
				sweep.Sample = sweepSample
			}

			killed := false
			sweep.After = func(ctx context.Context, lab *faults.Harness) {
				k := lab.Kill(ctx, faults.Kill{Stack: stack, Seed: kills[stack]})
				assert.NotEqual(t, faults.Failed, k.Verdict, "%s, %s at %s\n%s", k.Kill, k.Stage, k.Kind, k.Why)

				killed = true

				held := 0
				for _, stage := range lab.Reference {
					held += stage.Held
				}

				assert.Equal(t, stack == "ha", held > 0, "the drains of the highly available stack meet a budget: %d", held)
			}

			require.NoError(t, sweep.Run(t.Context()))
			assert.True(t, killed)

			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "the sample has no") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}

// requireMended holds how a case ended.
func requireMended(t *testing.T, r faults.Result) {
	t.Helper()

	switch {
	case r.Verdict == faults.Missed && evicts(r.Case):
		t.Logf("%s: no pod of the life was on a node that was drained", r.Case)

		return
	case believed(r.Case):
		assert.Equal(t, faults.Failed, r.Verdict, "%s: the provider has changed: mend reliability.md", r.Case)

		return
	case locked(r.Case):
		assert.Contains(t, []faults.Verdict{faults.Absorbed, faults.Again}, r.Verdict, "%s\n%s", r.Case, r.Why)
	case settings(r.Case):
		assert.NotEmpty(t, r.Said, "%s went unnoticed", r.Case)
		assert.Equal(t, map[faults.Stage]faults.Verdict{
			faults.Create: faults.Deleted, faults.ScaleUp: faults.Deleted, faults.Update: faults.Again,
		}[r.Case.Stage], r.Verdict, "%s\n%s", r.Case, r.Why)
	}

	assert.NotContains(t, []faults.Verdict{faults.Failed, faults.Missed}, r.Verdict, "%s\n%s", r.Case, r.Why)
}

// evicts says that the call is made only if a pod is on the node that is drained. K3s' own pods go where the scheduler
// puts them, which is the server or a worker from one life to the next.
func evicts(c faults.Case) bool {
	return c.Stack == "k3s" && strings.HasSuffix(c.Call.Pattern, "/eviction")
}

// believed says that the provider takes a proxy's page for the success of a deletion that is answered with nothing. The
// program is not told that the sweep destroys the stack, and has no hook then that looks for what is left.
func believed(c faults.Case) bool {
	return c.Effect == faults.Page && c.Lasts && c.Stage == faults.Destroy &&
		strings.HasPrefix(c.Call.Pattern, "DELETE /cluster/mapping/")
}

// locked says that Proxmox VE refuses to resize the disk of a VM, or to start the VM, because it is locked. The same
// update, run again, ends as an undisturbed one.
func locked(c faults.Case) bool {
	return c.Effect == faults.Locked && (c.Stage == faults.Create || c.Stage == faults.ScaleUp) &&
		(strings.HasSuffix(c.Call.Pattern, "/resize") || strings.HasSuffix(c.Call.Pattern, "/status/start"))
}

// settings says that a proxy answers in the place of Proxmox VE when a VM is given its settings, and the provider takes
// that for success. The program finds it, and what its message says helps.
func settings(c faults.Case) bool {
	return c.Effect == faults.Page && !c.Last && strings.HasPrefix(c.Call.Pattern, "PUT ") &&
		strings.HasSuffix(c.Call.Pattern, "/config")
}
