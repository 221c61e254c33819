package sequence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"

	"talos-proxmox/tests/engine"
)

// Many are sequences, one seed after the other.
type Many struct {
	Engine *engine.Engine
	// Dir keeps the stacks while they run.
	Dir string
	// Seeds are those to run.
	Seeds []uint64
	// Steps is how many changes a sequence has.
	Steps int
	// Parallel is how many labs run at the same time; 0: one.
	Parallel int
	// Results takes each result as soon as there is one; it is called by one goroutine at a time.
	Results func(Result)
	// Log is told what happens, line by line.
	Log io.Writer
}

// Run runs them. The error is one of the labs; what became of the sequences is in the results.
func (m *Many) Run(ctx context.Context) error {
	waiting := make(chan uint64, len(m.Seeds))
	for _, seed := range m.Seeds {
		waiting <- seed
	}

	close(waiting)

	var (
		work sync.WaitGroup
		mu   sync.Mutex
		errs = make([]error, max(1, m.Parallel))
		log  = &lines{to: m.Log}
	)

	for i := range errs {
		work.Go(func() {
			for seed := range waiting {
				s := Sequence{Engine: m.Engine, Dir: filepath.Join(m.Dir, fmt.Sprint(seed)), Seed: seed, Steps: m.Steps, Log: log}

				r, err := s.Run(ctx)
				if err != nil {
					errs[i] = err

					return
				}

				verdict := "went well"
				if r.Failed != "" {
					verdict = "FAILED: " + r.Failed
				}

				fmt.Fprintf(log, "seed %d: %5.1fs  %s\n", seed, r.Seconds, verdict)

				mu.Lock()
				m.Results(r)
				mu.Unlock()
			}
		})
	}

	work.Wait()

	return errors.Join(errs...)
}

// lines writes whole lines, of several goroutines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.to == nil {
		return len(p), nil
	}

	return l.to.Write(p)
}

// Table prints what there was, and how it ended.
func Table(out io.Writer, all []Result) error {
	var steps, preview, update, faults, again, runs, failed, disagree int

	lowest := "-"

	margins := []int{}

	for _, r := range all {
		runs += r.Runs

		if r.Failed != "" {
			failed++
		}

		if r.Disagrees {
			disagree++
		}

		for _, p := range r.Steps {
			steps++
			again += p.Again

			switch p.Refused {
			case Preview:
				preview++
			case Update:
				update++
			}

			if p.Fault {
				faults++
			}

			if p.Lowest != nil {
				margins = append(margins, *p.Lowest)
			}
		}
	}

	if len(margins) > 0 {
		lowest = fmt.Sprint(slices.Min(margins))
	}

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)

	for _, row := range []struct {
		name  string
		value any
	}{
		{"sequences", len(all)},
		{"changes", steps},
		{"refused in the preview, and in the update", preview},
		{"refused in the update", update},
		{"changes in which something went wrong", faults},
		{"updates", runs},
		{"updates that had to be run again", again},
		{"lowest margin of etcd", lowest},
		{"sequences in which the table was not right", disagree},
		{"sequences that failed", failed},
	} {
		fmt.Fprintf(w, "%s\t%v\n", row.name, row.value)
	}

	return w.Flush()
}
