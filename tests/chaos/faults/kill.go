package faults

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"

	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/journal"
)

// Kill is one end of the pulumi CLI in the middle of a stage, by SIGKILL. The plugins live on for a moment and go on
// with what they are at, as they do when it happens to an operator.
type Kill struct {
	Stack string
	Seed  uint64
}

func (k Kill) String() string { return fmt.Sprintf("%s, seed %d", k.Stack, k.Seed) }

// Killed is how a run went on that was killed.
type Killed struct {
	Kill Kill
	// Stage and Call say where: at the call of that number, and After so much time.
	Stage Stage
	Call  int
	Kind  string
	After time.Duration
	// Pending are the operations that the state had as under way.
	Pending []string `json:",omitempty"`
	// Steps are what an operator had to do, in order.
	Steps   []string
	Verdict Verdict
	Why     string `json:",omitempty"`
	// Seconds are those of the stage.
	Seconds float64
}

// longest is how long after a call the process may live.
const longest = 200 * time.Millisecond

// everything matches each call.
var everything = regexp.MustCompile("")

// Kill runs a life of the harness whose CLI is killed in the stages and at the calls that the seeds say, at most once in
// each stage. Each kind of face may have the call. Where the life ends early, kills that were left have failed, too.
func (g *Harness) Kill(ctx context.Context, kills ...Kill) []Killed {
	all, in := make([]Killed, len(kills)), map[Stage]*Killed{}

	fail := func(why error) []Killed {
		for i := range all {
			if all[i].Verdict == "" {
				all[i].Verdict, all[i].Why = Failed, why.Error()
			}
		}

		return all
	}

	for i, k := range kills {
		all[i] = g.plan(k)

		if other := in[all[i].Stage]; other != nil {
			return fail(fmt.Errorf("%s and %s are both of the stage %s: choose other seeds", other.Kill, k, other.Stage))
		}

		in[all[i].Stage] = &all[i]
	}

	for _, stage := range StagesOf(g.Name) {
		killed := in[stage]
		if killed == nil {
			if err := g.plain(ctx, stage); err != nil {
				return fail(fmt.Errorf("%s, undisturbed: %w", stage, err))
			}

			continue
		}

		start := time.Now()
		err := g.killIn(ctx, killed)
		killed.Seconds = time.Since(start).Seconds()

		if err != nil {
			killed.Verdict, killed.Why = Failed, err.Error()

			return fail(fmt.Errorf("not reached: the life ended in %s", stage))
		}
	}

	return all
}

// plan chooses where a kill strikes.
func (g *Harness) plan(k Kill) Killed {
	random := rand.New(rand.NewPCG(k.Seed, 1))
	stages := StagesOf(g.Name)
	killed := Killed{
		Kill: k, Stage: stages[random.IntN(len(stages))],
		After: time.Duration(random.Int64N(int64(longest))),
	}

	total := 0
	for _, n := range g.Reference[killed.Stage].Calls {
		total += n
	}

	killed.Call = random.IntN(total)

	return killed
}

// killIn runs the stage that is killed, and does what the documentation tells an operator to do then.
func (g *Harness) killIn(ctx context.Context, killed *Killed) error {
	before, err := g.standing()
	if err != nil {
		return err
	}

	mark := g.mark()
	kill := &timedKill{cli: g.cli, after: killed.After, skip: killed.Call}

	for _, face := range []journal.Face{journal.Proxmox, journal.Talos, journal.Kubernetes, journal.Factory, journal.SSH} {
		g.r.Lab.Journal().Plant(journal.Fault{
			Face: face, Call: everything, Kind: journal.Interfere, Times: math.MaxInt,
			Before: kill.call,
		})
	}

	err = g.run(ctx, killed.Stage)
	g.r.Lab.Journal().Clear()

	killed.Kind, killed.Verdict = kill.at(), Again

	if err == nil {
		killed.Verdict = Missed

		return g.evaluate(ctx, killed.Stage, "", before, true)
	}

	if !g.cli.Killed() {
		return fmt.Errorf("it failed before it was killed: %w", err)
	}

	if err := g.quiet(ctx, mark); err != nil {
		return err
	}

	s, err := g.state()
	if err != nil {
		return err
	}

	for _, o := range s.PendingOperations {
		killed.Pending = append(killed.Pending, string(o.Type)+" "+o.Resource.URN.Name())
	}

	if err := g.recover(ctx, killed, mark); err != nil {
		return err
	}

	return g.evaluate(ctx, killed.Stage, "", before, true)
}

// quiet waits until the plugins have ended what they were at: no call has come for a while, and no task runs.
func (g *Harness) quiet(ctx context.Context, mark int) error {
	ctx, cancel := context.WithTimeout(ctx, readyBound)
	defer cancel()

	for calls := mark; ctx.Err() == nil; {
		now := len(g.r.Lab.Journal().Entries())
		if now == calls && g.task() == "" {
			return nil
		}

		calls = now

		select {
		case <-ctx.Done():
		case <-time.After(1500 * time.Millisecond):
		}

		// Kubelets never rest.
		calls = max(calls, g.restless(calls))
	}

	return fmt.Errorf("the lab is still being called: %w", ctx.Err())
}

// restless is where the journal would stand if machines alone had called since.
func (g *Harness) restless(since int) int {
	all := g.r.Lab.Journal().Entries()

	for _, e := range all[since:] {
		if _, operator := CallOf(e); operator {
			return since
		}
	}

	return len(all)
}

// recover does what stacks/docs/troubleshooting.md tells: cancel the lock; refresh where the state has operations under
// way; then the same operation again, and what it says.
func (g *Harness) recover(ctx context.Context, killed *Killed, mark int) error {
	step := func(name string, do func() error) error {
		killed.Steps = append(killed.Steps, name)

		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(killed.Steps, ", "), err)
		}

		return nil
	}

	if err := step("cancel", func() error { return g.pulumi(ctx, "cancel", "--yes") }); err != nil {
		return err
	}

	if len(killed.Pending) > 0 {
		if err := step("refresh", func() error { return g.refresh(ctx) }); err != nil {
			return err
		}
	}

	verdict, err := g.mend(ctx, killed.Stage, nil, mark)
	killed.Verdict = verdict

	name := string(killed.Stage)
	if verdict == Imported || verdict == Refreshed {
		name += ", " + string(verdict)
	}

	return step(name, func() error { return err })
}

func (g *Harness) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, operationBound)
	defer cancel()

	g.log.Reset()

	_, err := g.r.Stack.Refresh(ctx, optrefresh.ProgressStreams(g.log), optrefresh.ErrorProgressStreams(g.log),
		optrefresh.ClearPendingCreates())
	if err != nil {
		return fmt.Errorf("%w\n%s", err, g.log.Tail())
	}

	return nil
}

// timedKill is struck at a call, a while after it.
type timedKill struct {
	cli   *engine.Command
	after time.Duration
	skip  int

	mu   sync.Mutex
	seen int
	kind string
}

func (b *timedKill) call(e journal.Entry) {
	c, operator := CallOf(e)
	if !operator {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if b.seen == b.skip {
		b.kind = c.String()
		time.AfterFunc(b.after, b.cli.Kill)
	}

	b.seen++
}

func (b *timedKill) at() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.kind
}
