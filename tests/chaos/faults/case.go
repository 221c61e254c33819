package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"talos-proxmox/tests/lab/journal"
)

// Case is one call that fails in one way.
type Case struct {
	Stack  string
	Stage  Stage
	Call   Call
	Effect Effect
	// Last strikes the last call of the kind in the stage; otherwise it is the first.
	Last bool
	// Lasts strikes all calls of the kind, until the run has ended.
	Lasts bool
}

// family is what is alike in cases: the stage, what befalls a call, and how often.
func (c Case) family() Case { return Case{Stage: c.Stage, Effect: c.Effect, Lasts: c.Lasts} }

// what befalls a call.
func (c Case) what() string {
	if c.Lasts {
		return string(c.Effect) + " for good"
	}

	return string(c.Effect)
}

func (c Case) String() string {
	which := "first"
	if c.Lasts {
		which = "every"
	} else if c.Last {
		which = "last"
	}

	return fmt.Sprintf("%s, %s: %s %s %s", c.Stack, c.Stage, which, c.Call, c.Effect)
}

// LostDeletion says that a host fails to delete a file, or a proxy answers in its place, while the stack is destroyed:
// the provider notices neither, and the program does. The sample leaves these cases to Besides.
func (c Case) LostDeletion() bool {
	return c.Stage == Destroy && (c.Effect == TaskFailed || c.Effect == Page) &&
		c.Call.Pattern == "DELETE /nodes/{host}/storage/{store}/content/{volume}"
}

// Cases are all that a harness's calls can be struck with, in a steady order.
func (g *Harness) Cases() []Case {
	var all []Case

	for _, stage := range StagesOf(g.Name) {
		for _, call := range sorted(g.Reference[stage].Calls) {
			for _, effect := range call.Effects() {
				c := Case{Stack: g.Name, Stage: stage, Call: call, Effect: effect}
				all = append(all, c)

				if g.Reference[stage].Calls[call] > 1 {
					c.Last = true
					all = append(all, c)
				}

				if slices.Contains(lastingEffects, effect) {
					c.Last, c.Lasts = false, true
					all = append(all, c)
				}
			}
		}
	}

	return all
}

// Verdict is how a case ended.
type Verdict string

// The verdicts.
const (
	// Absorbed: the run went through, and no action was needed.
	Absorbed Verdict = "absorbed"
	// Again: the same operation once more went through.
	Again Verdict = "again"
	// Refreshed: it took an update with --refresh, as the message said.
	Refreshed Verdict = "refreshed"
	// Imported: a VM had to be taken into the state, as the message said.
	Imported Verdict = "adopted"
	// Deleted: a VM that was begun, or a mapping, had to be deleted by hand, as the message or
	// stacks/docs/troubleshooting.md said.
	Deleted Verdict = "deleted"
	// Recreated: a node had to be replaced, as the message said.
	Recreated Verdict = "replaced"
	// Missed: the call was not made this time.
	Missed Verdict = "missed"
	// Failed: it took more than the documentation tells, or the world is not what it should be.
	Failed Verdict = "FAILED"
)

// Result is how a case ended, and why.
type Result struct {
	Case    Case
	Verdict Verdict
	// Why is what is wrong, for Failed; Said is what the first run ended with, and Then the failed ones after it.
	Why, Said string   `json:",omitempty"`
	Then      []string `json:",omitempty"`
	Seconds   float64
	// Seen is how many calls of the kind there were.
	Seen int
}

// Run runs the case's stage with the fault, and does what is left to do. The skip is how many calls of the kind pass
// first. The harness must stand where the stage begins; it is of no use any more when the verdict is Failed.
func (g *Harness) Run(ctx context.Context, c Case, skip int) Result {
	start, mark := time.Now(), g.mark()

	before, err := g.standing()
	if err != nil {
		return Result{Case: c, Verdict: Failed, Why: err.Error()}
	}

	fault := c.fault(skip)

	var foreign foreignVM
	if c.Effect == Taken {
		fault.Before = func(journal.Entry) { foreign = g.placeForeignVM(c.Stage) }
	}

	var (
		over     undo
		happened error
	)

	if event := events[c.Effect]; event != nil {
		fault.Before = func(journal.Entry) { over, happened = event(g) }
	}

	if c.Lasts {
		fault.Times = math.MaxInt
	}

	g.r.Lab.Journal().Plant(fault)
	g.failed, g.recreated = nil, nil
	first := g.run(ctx, c.Stage)
	g.r.Lab.Journal().Clear()

	if over != nil {
		happened = errors.Join(happened, over())
	}

	result := Result{Case: c, Verdict: Absorbed, Seen: count(g.r.Lab.Journal().Entries()[mark:])[c.Call]}
	if first != nil {
		result.Said = first.Error()
	}

	struck := slices.ContainsFunc(g.r.Lab.Journal().Entries()[mark:], func(e journal.Entry) bool { return e.Fault != "" })

	err = errors.Join(happened, foreign.leave(g))
	if err == nil && first != nil {
		result.Verdict, err = g.mend(ctx, c.Stage, first, mark)
	}

	if err = errors.Join(err, g.evaluate(ctx, c.Stage, c.Effect, before, err == nil)); err != nil {
		result.Verdict, result.Why = Failed, err.Error()
	} else if !struck {
		result.Verdict = Missed
	}

	result.Seconds, result.Then = time.Since(start).Seconds(), g.failed[min(1, len(g.failed)):]

	return result
}

// standing is what must outlast a stage.
type standing struct {
	machines map[int]string
	secrets  time.Time
}

func (g *Harness) standing() (standing, error) {
	made, err := machines(g.r.Lab.World())
	if err != nil {
		return standing{}, err
	}

	s, err := g.state()

	return standing{made, s.secrets()}, err
}

// unknown is what the lab was asked for and does not know. A guest that a page has kept from its settings has no user
// data, either.
func (g *Harness) unknown(effect Effect) error {
	return g.r.Lab.Journal().Unknown(func(e journal.Entry) bool {
		return effect == Page && e.Face == journal.Guest && strings.HasSuffix(e.Call, "cloud-init")
	})
}

// evaluate compares the world with that of the undisturbed life, and with what was there before.
func (g *Harness) evaluate(ctx context.Context, stage Stage, effect Effect, before standing, whole bool) error {
	errs := []error{g.unknown(effect)}

	// What does not go on has no end to wait for.
	if whole {
		errs = append(errs, g.settle(ctx))
	}

	now, err := g.look()
	if diff := cmp.Diff(g.Reference[stage].view, now); err == nil && diff != "" {
		err = fmt.Errorf("the world is not that of an undisturbed life (-undisturbed +this):\n%s", diff)
	}

	errs = append(errs, err)

	s, err := g.state()
	if left := s.pendingOperations(); err == nil && left != "" {
		err = errors.New(left)
	}

	errs = append(errs, err)

	if stage == Create || stage == Destroy {
		return errors.Join(errs...)
	}

	if made := s.secrets(); !made.Equal(before.secrets) {
		errs = append(errs, fmt.Errorf("the cluster has new secrets: made %s, those before %s", made, before.secrets))
	}

	made, err := machines(g.r.Lab.World())
	for _, id := range slices.Sorted(maps.Keys(before.machines)) {
		if made[id] != before.machines[id] && !slices.Contains(g.Reference[stage].renewed, id) &&
			!slices.Contains(g.recreated, id) {
			errs = append(errs, fmt.Errorf("VM %d was recreated", id))
		}
	}

	return errors.Join(append(errs, err)...)
}

// mend does what an operator is told to do when an operation has failed, or was killed before it said why: the same
// again, and what its message says.
func (g *Harness) mend(ctx context.Context, stage Stage, failed error, mark int) (Verdict, error) {
	// Tasks of the first run go on by themselves. An operator is not faster.
	if err := g.idle(ctx); err != nil {
		return Again, err
	}

	secrets, bootstraps := g.secretsMade(), g.bootstraps(mark)

	verdict, err := Again, failed

	// What has to be deleted by hand is no error the next time: no VM is made of such an image, or the state has lost it.
	if failed == nil || !freeVolume.MatchString(failed.Error()) && !deleteMapping.MatchString(failed.Error()) {
		err = g.run(ctx, stage)
	}

	// One remedy may bring to light that another is needed.
	for n := 0; err != nil && n < len(remedies); n++ {
		took, reported, again := g.remedy(ctx, stage, err)
		if !reported {
			break
		}

		verdict, err = worse(verdict, took), again
	}

	if err != nil {
		return verdict, fmt.Errorf("it does not go on: %w", err)
	}

	if now := g.secretsMade(); stage != Destroy && !secrets.IsZero() && !now.Equal(secrets) {
		return verdict, fmt.Errorf("going on has made new secrets: at %s, those before at %s", now, secrets)
	}

	if now := g.bootstraps(mark); bootstraps > 0 && now > bootstraps {
		return verdict, errors.New("going on has asked for another bootstrap")
	}

	return verdict, nil
}

func (g *Harness) secretsMade() time.Time {
	s, err := g.state()
	if err != nil {
		return time.Time{}
	}

	return s.secrets()
}

// bootstraps counts the requests for one, since the stage began, that nothing befell.
func (g *Harness) bootstraps(mark int) int {
	return count(slices.DeleteFunc(g.r.Lab.Journal().Entries()[mark:], func(e journal.Entry) bool {
		return e.Fault != ""
	}))[Call{journal.Talos, "/machine.MachineService/Bootstrap"}]
}
