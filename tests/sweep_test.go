package tests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/chaos/faults"
	"talos-proxmox/tests/lab/journal"
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

// kills are seeds that end the pulumi CLI in the middle of stages of each stack, all in one life. There is a command
// for more: go run ./tests/chaos/sweep --kills 50.
var kills = map[string][]uint64{
	"template": {102}, "iso": {103}, "disk": {101},
	"ha":  {119, 113, 142, 104}, // upgrade, replace, remove, teardown
	"k3s": {105, 133, 113, 142}, // update, upgrade, replace, remove
}

// eventCases run each event once, whatever the sample has, in stages of two stacks for which there are lives anyway.
var eventCases = map[faults.Effect]faults.Case{
	faults.TokenRevoked:     eventAt("iso", faults.Create, "POST /nodes/{host}/qemu"),
	faults.Full:             eventAt("iso", faults.Create, "POST /nodes/{host}/qemu"),
	faults.SnapshotTaken:    eventAt("iso", faults.ScaleUp, "PUT /nodes/{host}/qemu/{vm}/config"),
	faults.APIAway:          eventAt("iso", faults.ScaleUp, "POST /nodes/{host}/qemu/{vm}/status/start"),
	faults.PrivilegeRevoked: eventAt("template", faults.ScaleUp, "POST /nodes/{host}/qemu/{vm}/clone"),
	faults.NoQuorum:         eventAt("template", faults.ScaleUp, "PUT /nodes/{host}/qemu/{vm}/config"),
	faults.Stale:            eventAt("template", faults.Update, "PUT /nodes/{host}/qemu/{vm}/config"),
	faults.BackupRuns:       eventAt("template", faults.Update, "PUT /nodes/{host}/qemu/{vm}/resize"),
	faults.HostCrash:        eventAt("template", faults.Update, "POST /nodes/{host}/qemu/{vm}/status/reboot"),
}

// effectCases run each effect once that no sample has.
var effectCases = map[faults.Effect]faults.Case{
	faults.HalfAnswer:     eventAt("template", faults.ScaleUp, "GET /nodes/{host}/qemu/{vm}/config"),
	faults.TaskHangs:      eventAt("template", faults.ScaleUp, "POST /nodes/{host}/qemu/{vm}/clone"),
	faults.TaskFailed:     eventAt("template", faults.ScaleUp, "POST /nodes/{host}/qemu/{vm}/status/start"),
	faults.TaskFailedLate: eventAt("template", faults.Create, "POST /nodes/{host}/qemu/{vm}/clone"),
	faults.Busy:           eventAt("template", faults.ScaleUp, "PUT /nodes/{host}/qemu/{vm}/config"),
	faults.Unanswered:     eventAt("template", faults.Update, "PUT /nodes/{host}/qemu/{vm}/config"),
	faults.Taken:          eventAt("iso", faults.Create, "POST /nodes/{host}/qemu"),
}

func eventAt(stack string, stage faults.Stage, call string) faults.Case {
	return faults.Case{Stack: stack, Stage: stage, Call: faults.Call{Face: journal.Proxmox, Pattern: call}}
}

// isEventCase says that the case is the one of its event, or effect.
func isEventCase(c faults.Case) bool {
	want, there := eventCases[c.Effect]
	if !there {
		want, there = effectCases[c.Effect]
	}

	want.Effect = c.Effect

	return there && c == want
}

// absorbable are the events that no operation needs to fail of.
var absorbable = []faults.Effect{faults.Stale, faults.BackupRuns, faults.SnapshotTaken}

// TestEventCases: no event is left to the sample.
func TestEventCases(t *testing.T) {
	t.Parallel()

	assert.Equal(t, faults.Events(), slices.Sorted(maps.Keys(eventCases)))
}

// TestSweep breaks a call in each stage of a stack's life, and holds that the stack comes out of it as if nothing had
// happened. Then it kills the CLI, and does what the documentation says to do then.
func TestSweep(t *testing.T) {
	t.Parallel()

	for _, stack := range faults.Stacks() {
		t.Run(stack, func(t *testing.T) {
			t.Parallel()

			e, err := theEngine()
			require.NoError(t, err)

			log, ran := newOutput(t), map[faults.Effect]bool{}
			sweep := faults.Sweep{
				Engine: e, Dir: t.TempDir(), Seed: sweepSeed, Sample: smallSample, Log: log, Stacks: []string{stack},
				Besides: func(c faults.Case) bool {
					return isEventCase(c) || stack != "k3s" && lostDeletion(c) || stack == "template" && (locked(c) || settings(c))
				},
				Results: func(r faults.Result) {
					if isEventCase(r.Case) {
						ran[r.Case.Effect] = true

						t.Logf("%s: %s, %.0fs", r.Verdict, r.Case, r.Seconds)
					}

					requireMended(t, r)
				},
			}

			if len(faults.StagesOf(stack)) > smallSample {
				sweep.Sample = sweepSample
			}

			killed := false
			sweep.After = func(ctx context.Context, lab *faults.Harness) {
				var seeds []faults.Kill
				for _, seed := range kills[stack] {
					seeds = append(seeds, faults.Kill{Stack: stack, Seed: seed})
				}

				for _, k := range lab.Kill(ctx, seeds...) {
					assert.NotEqual(t, faults.Failed, k.Verdict, "%s, %s at %s\n%s", k.Kill, k.Stage, k.Kind, k.Why)
					t.Logf("%s: %s, %s at %s after %s, %.0fs", k.Verdict, k.Kill, k.Stage, k.Kind, k.After, k.Seconds)
				}

				killed = true

				held := 0
				for _, stage := range lab.Reference {
					held += stage.Held
				}

				assert.Equal(t, stack == "ha", held > 0, "the drains of the highly available stack meet a budget: %d", held)
			}

			require.NoError(t, sweep.Run(t.Context()))
			assert.True(t, killed)

			cases := maps.Clone(eventCases)
			maps.Copy(cases, effectCases)

			for effect, c := range cases {
				assert.Equal(t, c.Stack == stack, ran[effect], "%s: the call of its case is not made any more", effect)
			}

			reportLeftOut(t, log.String())
		})
	}
}

// reportLeftOut prints what the sample of a stack has left out, in one line.
func reportLeftOut(t *testing.T, log string) {
	t.Helper()

	var left []string

	for line := range strings.Lines(log) {
		if _, what, found := strings.Cut(strings.TrimSpace(line), ": the sample has "); found {
			left = append(left, what)
		}
	}

	require.NotEmpty(t, left)

	line := fmt.Sprintf("LEFT OUT %s: the sample has %s\n", t.Name(), strings.Join(left, ", and "))
	fmt.Fprint(os.Stderr, line)

	// 'go test' shows what passing packages print for one package only. The pipeline has a page for it.
	if page := os.Getenv("GITHUB_STEP_SUMMARY"); page != "" {
		f, err := os.OpenFile(page, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)

		_, err = f.WriteString(line + "\n")
		require.NoError(t, errors.Join(err, f.Close()))
	}
}

// requireMended holds how a case ended.
func requireMended(t *testing.T, r faults.Result) {
	t.Helper()

	switch {
	case r.Verdict == faults.Missed && evicts(r.Case):
		t.Logf("%s: no pod of the life was on a node that was drained", r.Case)

		return
	case locked(r.Case):
		assert.Contains(t, []faults.Verdict{faults.Absorbed, faults.Again}, r.Verdict, "%s\n%s", r.Case, r.Why)
	case settings(r.Case):
		assert.NotEmpty(t, r.Said, "%s went unnoticed", r.Case)
		assert.Equal(t, map[faults.Stage]faults.Verdict{
			faults.Create: faults.Deleted, faults.ScaleUp: faults.Deleted, faults.Update: faults.Again,
		}[r.Case.Stage], r.Verdict, "%s\n%s", r.Case, r.Why)
	}

	if _, event := eventCases[r.Case.Effect]; event && isEventCase(r.Case) && !slices.Contains(absorbable, r.Case.Effect) {
		assert.NotEmpty(t, r.Said, "%s went unnoticed", r.Case)
	}

	assert.NotContains(t, []faults.Verdict{faults.Failed, faults.Missed}, r.Verdict, "%s\n%s", r.Case, r.Why)
}

// evicts says that the call is made only if a pod is on the node that is drained. K3s' own pods go where the scheduler
// puts them, which is the server or a worker from one life to the next.
func evicts(c faults.Case) bool {
	return c.Stack == "k3s" && strings.HasSuffix(c.Call.Pattern, "/eviction")
}

// lostDeletion is a deletion that only the program finds to have failed.
func lostDeletion(c faults.Case) bool {
	mapping := c.Stage == faults.Destroy && c.Effect == faults.Page &&
		strings.HasPrefix(c.Call.Pattern, "DELETE /cluster/mapping/")

	return !c.Last && (c.LostDeletion() || mapping)
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
