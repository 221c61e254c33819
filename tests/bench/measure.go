package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"golang.org/x/sync/errgroup"

	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/chaos/faults"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/rehearsal"
)

// bench measures rows.
type bench struct {
	engine    *engine.Engine
	root      string
	dir       string // for whatever is written on the way
	parallel  int
	latencies timeline.Latencies
	profiles  string // where profiles of the engine go; empty: none are made
	out       io.Writer
	terraform *terraform // nil: nothing is compared
}

// prepare compiles the program, so that it runs in a process of its own, as an operator's does.
func (b *bench) prepare(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(b.dir, program), ".")
	build.Dir = b.root

	if printed, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("the program cannot be compiled: %w\n%s", err, printed)
	}

	return nil
}

// row measures a row, from nothing to nothing.
func (b *bench) row(ctx context.Context, row Row) (Result, error) {
	result := Result{Row: row, Parallel: b.parallelOf(row), Downloads: map[string]int64{}}

	lives := make([]*life, row.Clusters)
	for i := range lives {
		var err error
		if lives[i], err = b.start(ctx, row); err != nil {
			return result, err
		}
		defer lives[i].close()
	}

	// Of several at once, the making of them is what is asked for.
	stages := []Stage{First, Create, Again, Preview, Refresh, Destroy}
	if row.Clusters > 1 {
		stages = []Stage{Create, Destroy}
	}

	var created []apitype.ResourceV3

	for _, stage := range stages {
		steps := make([]Step, len(lives))

		all, each := errgroup.WithContext(ctx)
		for i, l := range lives {
			all.Go(func() (err error) {
				steps[i], err = l.step(each, stage)

				return err
			})
		}

		if err := all.Wait(); err != nil {
			return result, fmt.Errorf("%s, %s: %w", row, stage, err)
		}

		for _, s := range steps {
			fmt.Fprintf(b.out, "%-12s %-14s %6.1fs\n", row, stage, s.Wall.Seconds())
		}

		result.Steps = append(result.Steps, steps...)

		if stage == Create {
			var err error
			if created, result.State, err = lives[0].state(ctx); err != nil {
				return result, err
			}
		}
	}

	if b.terraform != nil && row.compared() {
		var err error
		if result.Terraform, err = b.compare(ctx, row); err != nil {
			return result, err
		}
	}

	if row.oneHost() {
		var err error
		if result.Bare, err = lives[0].bare(ctx, created); err != nil {
			return result, fmt.Errorf("%s, registered by a bare program: %w", row, err)
		}
	}

	for _, l := range lives {
		for _, d := range l.rehearsal.Lab.World().Downloads() {
			result.Downloads[d.Host] += d.Bytes
		}
	}

	return result, nil
}

// life is a stack with a lab of its own.
type life struct {
	*bench
	row       Row
	dir       string
	rehearsal *rehearsal.Rehearsal
	stack     auto.Stack
	measured  *measured
}

// start starts a lab for a row's stack, with nothing deployed. The program is the compiled one.
func (b *bench) start(ctx context.Context, row Row) (*life, error) {
	l := &life{bench: b, row: row}

	var err error
	if l.dir, err = os.MkdirTemp(b.dir, "stack-"); err != nil {
		return nil, err
	}

	stack, err := row.stack(b.root, l.dir)
	if err != nil {
		return nil, err
	}

	if l.rehearsal, err = rehearsal.Start(ctx, stack,
		rehearsal.Options{Engine: b.engine, Latencies: b.latencies, Dir: l.dir}); err != nil {
		return nil, err
	}

	l.measured = &measured{
		PulumiCommand: b.engine.Command(), watch: newWatch(l.rehearsal.Backend.Dir()), saves: &saves{},
	}
	if b.profiles != "" {
		l.measured.profiles = filepath.Join(b.profiles, row.String())
	}

	return l, l.open(ctx)
}

// open makes the stack a project whose program is compiled.
func (l *life) open(ctx context.Context) error {
	project := filepath.Join(l.dir, "project")
	if err := os.MkdirAll(project, 0o700); err != nil {
		return err
	}

	settings := fmt.Sprintf("name: %s\nruntime: { name: go, options: { binary: %s } }\n", config.Project,
		filepath.Join(l.bench.dir, program))
	if err := os.WriteFile(filepath.Join(project, "Pulumi.yaml"), []byte(settings), 0o600); err != nil {
		return err
	}

	const name = "measured"
	if err := l.rehearsal.WriteStackFile(filepath.Join(project, "Pulumi."+name+".yaml")); err != nil {
		return err
	}

	var err error
	if l.stack, err = l.rehearsal.Backend.LocalStack(ctx, project, name, nil, auto.Pulumi(l.measured)); err != nil {
		return err
	}

	if err := l.watchState(config.Project, name); err != nil {
		return err
	}

	return l.stack.SetAllConfig(ctx, l.rehearsal.Secrets())
}

// watchState has the saves of a stack counted, which is there, and sets what speed.md advises.
func (l *life) watchState(project, stack string) error {
	if !l.row.Plain {
		l.stack.Workspace().SetEnvVar(parallelDiff, "true")
	}

	var err error
	l.measured.saves, err = countSaves(stateFile(l.rehearsal.Backend.Dir(), project, stack))

	return err
}

// parallelOf is how many operations the engine may have at a time; 0: as many as it likes.
func (b *bench) parallelOf(row Row) int {
	if row.Plain {
		return 0
	}

	return b.parallel
}

// parallelDiff has the engine compare resources with the state in parallel, as stacks/docs/speed.md advises, and
// not one after the other.
const parallelDiff = "PULUMI_PARALLEL_DIFF"

func (l *life) close() {
	l.measured.watch.close()
	l.measured.saves.close()
	l.rehearsal.Close() // what was measured is measured
}

// step takes a stage, and measures it.
func (l *life) step(ctx context.Context, stage Stage) (Step, error) {
	if stage == Destroy {
		// The nodes are let go of beforehand: an operator states that in the stack's file.
		if err := l.stack.SetConfigWithOptions(ctx, config.Project+":lifecycle.teardown", auto.ConfigValue{Value: "true"},
			&auto.ConfigOptions{Path: true}); err != nil {
			return Step{}, err
		}

		// As 'ops run destroy' does it.
		l.stack.Workspace().SetEnvVar(config.DestroyVariable, "1")
	}

	before := len(l.rehearsal.Lab.Journal().Entries())
	l.rehearsal.Lab.Timeline().Reset()

	l.measured.finished = func() error { return nil }
	if stage == Create {
		l.measured.finished = func() error { return l.rehearsal.WaitReady(ctx, ready) }
	}

	s, err := l.timed(ctx, stage)
	if err != nil {
		return s, blame(err, l.rehearsal.Lab.Journal())
	}

	s.CriticalPath = l.rehearsal.Lab.Timeline().Report().CriticalPath

	asked := l.rehearsal.Lab.Journal().Entries()[before:]
	s.count(asked)

	if len(asked) > 0 {
		last := asked[len(asked)-1].Time
		if stage == Create {
			last = l.measured.ended
		}

		s.Worked = last.Sub(asked[0].Time)
	}

	return s, l.rehearsal.Lab.Journal().Unknown()
}

// timed runs the command of a stage, and says what that took.
func (l *life) timed(ctx context.Context, stage Stage) (Step, error) {
	seen := make(chan events.EngineEvent)
	took := make(chan time.Duration, 1)

	go func() { took <- engineTime(seen) }()

	l.measured.stage = stage

	if err := l.run(ctx, stage, seen); err != nil {
		return Step{}, err
	}

	m := l.measured

	return Step{
		Stage: stage, Wall: m.ended.Sub(m.began), Engine: <-took, Processes: m.used, Saves: m.saved,
		Calls: map[string]int{}, Polls: map[string]int{},
	}, nil
}

// blame adds to an error what the lab does not know: nothing else may be wrong.
func blame(err error, j *journal.Journal) error { return errors.Join(err, j.Unknown()) }

// ready bounds how long nodes may join after their stack is up.
const ready = 2 * time.Minute

func (l *life) run(ctx context.Context, stage Stage, seen chan<- events.EngineEvent) error {
	parallel := l.parallelOf(l.row)

	switch stage {
	case Create, Again:
		done, err := l.stack.Up(ctx, optup.Parallel(parallel), optup.EventStreams(seen), optup.SuppressProgress(),
			optup.SuppressOutputs())
		if err == nil && stage == Again {
			err = unchanged(*done.Summary.ResourceChanges)
		}

		return err
	case First, Preview:
		_, err := l.stack.Preview(ctx, optpreview.Parallel(parallel), optpreview.EventStreams(seen),
			optpreview.SuppressProgress(), optpreview.SuppressOutputs())

		return err
	case Refresh:
		_, err := l.stack.Refresh(ctx, optrefresh.Parallel(parallel), optrefresh.EventStreams(seen),
			optrefresh.SuppressProgress(), optrefresh.SuppressOutputs())

		return err
	case Destroy:
		_, err := l.stack.Destroy(ctx, optdestroy.RunProgram(true), optdestroy.Parallel(parallel),
			optdestroy.EventStreams(seen),
			optdestroy.SuppressProgress(), optdestroy.SuppressOutputs())

		return err
	default:
		return fmt.Errorf("%q is no stage", stage)
	}
}

// unchanged holds that what was to change nothing did so: something else was measured otherwise.
func unchanged(changes map[string]int) error {
	for kind, n := range changes {
		if kind != "same" && n > 0 {
			return fmt.Errorf("%d resources were to stay as they are: %s", n, kind)
		}
	}

	return nil
}

// engineTime is from the engine's first word to its summary.
func engineTime(seen <-chan events.EngineEvent) time.Duration {
	var first, last time.Time

	for e := range seen {
		switch {
		case e.PreludeEvent != nil:
			first = time.Now()
		case e.SummaryEvent != nil:
			last = time.Now()
		}
	}

	return last.Sub(first)
}

// waiting are the kinds of calls that ask only whether something has come to an end.
var waiting = regexp.MustCompile(`/tasks/|/status/current$|/agent/|/readyz$|/ServiceList$`)

// theirs are what nodes ask of each other.
const theirs = "/securityapi.SecurityService/"

// count counts calls by kind, without those that machines make by themselves.
func (s *Step) count(asked []journal.Entry) {
	for _, e := range asked {
		call, made := faults.CallOf(e)
		if !made || e.Face == journal.Guest || strings.HasPrefix(e.Call, theirs) {
			continue
		}

		if kind := strings.TrimSpace(call.String()); waiting.MatchString(kind) {
			s.Polls[kind]++
		} else {
			s.Calls[kind]++
		}
	}
}
