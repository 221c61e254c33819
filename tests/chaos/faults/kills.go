package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"

	"talos-proxmox/tests/engine"
)

// Kills are many kills, one seed after the other, over the small stacks in turn.
type Kills struct {
	Engine *engine.Engine
	// Dir keeps the labs' stacks while they run.
	Dir string
	// Stacks are the small stacks; empty: all.
	Stacks []string
	// First and Count are the seeds.
	First uint64
	Count int
	// Parallel is how many labs run at the same time; 0: one.
	Parallel int
	// Results takes each result as soon as there is one; it is called by one goroutine at a time.
	Results func(Killed)
	// Log is told what happens, line by line.
	Log io.Writer

	mu sync.Mutex
}

// Run runs them.
func (s *Kills) Run(ctx context.Context) error {
	names := s.Stacks
	if len(names) == 0 {
		names = Stacks()
	}

	waiting := make(chan Kill, s.Count)
	for n := range s.Count {
		seed := s.First + uint64(n)                                             //nolint:gosec // a count is not negative
		waiting <- Kill{Stack: names[int(seed%uint64(len(names)))], Seed: seed} //nolint:gosec // there are few stacks
	}

	close(waiting)

	var (
		work sync.WaitGroup
		errs = make([]error, max(1, s.Parallel))
	)

	for i := range errs {
		work.Go(func() { errs[i] = s.work(ctx, i, waiting) })
	}

	work.Wait()

	return errors.Join(errs...)
}

func (s *Kills) work(ctx context.Context, number int, waiting <-chan Kill) (err error) {
	open := map[string]*Harness{} // by their stack

	defer func() {
		for _, r := range open {
			err = errors.Join(err, r.Close())
		}
	}()

	for k := range waiting {
		if ctx.Err() != nil {
			return ctx.Err()
		}

		r, there := open[k.Stack]
		if !there {
			dir := filepath.Join(s.Dir, fmt.Sprintf("%s-%d-%d", k.Stack, number, k.Seed))
			if r, err = Open(ctx, s.Engine, k.Stack, dir, ""); err != nil {
				return err
			}

			open[k.Stack] = r
		}

		killed := r.Kill(ctx, k)[0]
		if ctx.Err() != nil {
			return ctx.Err()
		}

		s.result(killed)

		if killed.Verdict == Failed {
			delete(open, k.Stack)

			if err := r.Close(); err != nil {
				return err
			}
		}
	}

	return nil
}

func (s *Kills) result(k Killed) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.Log != nil {
		fmt.Fprintf(s.Log, "%-9s %5.1fs  %s, %s: %s after %s; %s\n", k.Verdict, k.Seconds, k.Kill, k.Stage,
			k.After.Round(1e6), k.Kind, strings.Join(k.Steps, ", "))
	}

	if s.Results != nil {
		s.Results(k)
	}
}

// KillTable prints how the kills ended, by stack and stage.
func KillTable(out io.Writer, all []Killed) error {
	results := make([]Result, 0, len(all))
	pending := 0

	for _, k := range all {
		results = append(results, Result{Case: Case{Stack: k.Kill.Stack, Stage: k.Stage}, Verdict: k.Verdict})

		if len(k.Pending) > 0 {
			pending++
		}
	}

	if err := table(out, "KILLED IN", byStage, stagesOfStacks(), results); err != nil {
		return err
	}

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "with operations under way in the state: %d\n", pending)

	return w.Flush()
}
