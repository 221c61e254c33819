package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/world"
)

// Sweep runs many cases. A life of a harness takes one case in each of its stages, so four cases cost little more than
// one.
type Sweep struct {
	Engine *engine.Engine
	// Proxmox is the version of Proxmox VE; empty: the newest that the lab knows.
	Proxmox world.Version
	// Dir keeps the labs' stacks while they run.
	Dir string
	// Stacks are the small stacks to break things in; empty: all.
	Stacks []string
	// Stages are where things break; empty: in all.
	Stages []Stage
	// Seed orders the cases; the same seed, the same order.
	Seed uint64
	// Sample is how many cases are run of each stack; 0: all.
	Sample int
	// Shard of Shards is this sweep's; Shards 0 means that there is one.
	Shard, Shards int
	// Besides are cases that are run whether or not the sample has them; nil: none.
	Besides func(Case) bool
	// Only runs the cases whose text holds it; empty: all.
	Only func(Case) bool
	// After is called with each lab once the cases of its stack are done, unless the last one failed.
	After func(context.Context, *Harness)
	// Parallel is how many labs run at the same time; 0: one.
	Parallel int
	// Done are cases that need not be run again.
	Done []Result
	// Results takes each result as soon as there is one; it is called by one goroutine at a time.
	Results func(Result)
	// Log is told what happens, line by line.
	Log io.Writer

	mu sync.Mutex
}

// attempt is a case that waits, with how many calls of its kind are to pass.
type attempt struct {
	Case
	skip, tries int
}

// misses is how often a case is tried whose call was not made: calls that poll come as often as they have to.
const misses = 3

// queue holds what is left for one stack.
type queue struct {
	mu sync.Mutex
	// by stage; nil before the first harness has told what there is.
	waiting map[Stage][]attempt
}

// Run runs the cases. The error is one of the sweep itself; what became of the cases is in the results.
func (s *Sweep) Run(ctx context.Context) error {
	names := s.Stacks
	if len(names) == 0 {
		names = Stacks()
	}

	parallel := max(1, s.Parallel)
	queues := map[string]*queue{}

	for _, name := range names {
		queues[name] = &queue{}
	}

	var (
		work sync.WaitGroup
		errs = make([]error, parallel)
	)

	for i := range parallel {
		work.Go(func() {
			// Each lab begins with another stack, and goes on with those that are left.
			for n := range names {
				name := names[(i+n)%len(names)]
				if err := s.stack(ctx, name, i, queues[name]); err != nil {
					errs[i] = err

					return
				}
			}
		})
	}

	work.Wait()

	return errors.Join(errs...)
}

// stack runs the cases of a stack that are left, in one harness after the other.
func (s *Sweep) stack(ctx context.Context, name string, number int, q *queue) error {
	for ctx.Err() == nil && !q.empty() {
		s.printf("%s: a lab, and an undisturbed life", name)

		harness, err := Open(ctx, s.Engine, name, filepath.Join(s.Dir, fmt.Sprintf("%s-%d", name, number)),
			s.Proxmox)
		if err != nil {
			return err
		}

		q.fill(s, harness)

		sound := true
		for sound && ctx.Err() == nil && !q.empty() {
			if sound, err = s.life(ctx, harness, q); err != nil {
				s.printf("%s: the lab is given up: %v", name, err)
			}
		}

		if sound && s.After != nil {
			s.After(ctx, harness)
		}

		if err := harness.Close(); err != nil {
			return err
		}
	}

	return ctx.Err()
}

func (s *Sweep) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.Log != nil {
		fmt.Fprintf(s.Log, format+"\n", args...)
	}
}

// life runs one life of the harness, with a case in each stage that has one left. The harness is not to be used again
// unless it is sound.
func (s *Sweep) life(ctx context.Context, g *Harness, q *queue) (sound bool, err error) {
	for _, stage := range StagesOf(g.Name) {
		a, there := q.take(stage)

		// Nothing is left for this stage and those after it: the stack may go. It is let go as a whole, without nodes that
		// are still to be removed.
		if !there && stage != Remove && stage != Destroy && !q.after(stage) {
			continue
		}

		if !there {
			if err := g.plain(ctx, stage); err != nil {
				return false, fmt.Errorf("%s, %s, undisturbed: %w", g.Name, stage, err)
			}

			continue
		}

		result := g.Run(ctx, a.Case, a.skip)
		if ctx.Err() != nil {
			return false, nil
		}

		if result.Verdict == Missed && a.tries+1 < misses && result.Seen > 0 {
			q.put(attempt{a.Case, min(a.skip, result.Seen) - 1, a.tries + 1})

			continue
		}

		s.result(result)

		if result.Verdict == Failed {
			return false, nil
		}
	}

	return true, nil
}

func (s *Sweep) result(r Result) {
	s.printf("%-9s %5.1fs  %s", r.Verdict, r.Seconds, r.Case)

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.Results != nil {
		s.Results(r)
	}
}

// fill takes the cases of the stack that are this sweep's, once.
func (q *queue) fill(s *Sweep, g *Harness) {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.waiting != nil {
		return
	}

	q.waiting = map[Stage][]attempt{}

	for _, c := range s.chosen(g) {
		skip := 0
		if c.Last {
			skip = g.Reference[c.Stage].Calls[c.Call] - 1
		}

		q.waiting[c.Stage] = append(q.waiting[c.Stage], attempt{Case: c, skip: skip})
	}
}

// chosen are the cases of a harness that are to be run, in the order that the seed gives.
func (s *Sweep) chosen(g *Harness) []Case {
	done := map[string]bool{}
	for _, r := range s.Done {
		done[r.Case.String()] = true
	}

	cases := slices.DeleteFunc(g.Cases(), func(c Case) bool {
		return len(s.Stages) > 0 && !slices.Contains(s.Stages, c.Stage) || s.Shards > 1 && shard(c, s.Shards) != s.Shard ||
			s.Only != nil && !s.Only(c)
	})

	r := rand.New(rand.NewPCG(s.Seed, 0))
	r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })

	if s.Sample > 0 {
		some := spread(slices.DeleteFunc(slices.Clone(cases), Case.LostDeletion), s.Sample)

		for _, c := range cases {
			if s.Besides != nil && s.Besides(c) && !slices.Contains(some, c) {
				some = append(some, c)
			}
		}

		s.printf("%s: the sample has no case of %s", g.Name, strings.Join(leftOut(cases, some), "; "))

		cases = some
	}

	s.printf("%s: %d cases, %d of them done before", g.Name, len(cases),
		len(slices.DeleteFunc(slices.Clone(cases), func(c Case) bool { return !done[c.String()] })))

	return slices.DeleteFunc(cases, func(c Case) bool { return done[c.String()] })
}

// spread takes as many cases of each stage as of any other, as far as there are.
func spread(cases []Case, n int) []Case {
	var (
		some []Case
		next = map[Stage][]Case{}
	)

	for _, c := range cases {
		next[c.Stage] = append(next[c.Stage], c)
	}

	for n = min(n, len(cases)); len(some) < n; {
		for _, stage := range Stages() {
			if len(next[stage]) > 0 && len(some) < n {
				some, next[stage] = append(some, next[stage][0]), next[stage][1:]
			}
		}
	}

	return some
}

// leftOut are the families of cases of which a sample has none, those with the same fault together: "reset (create,
// update)". Without stages, the sample has the fault in none.
func leftOut(all, sample []Case) []string {
	left := map[Case]bool{}
	for _, c := range all {
		left[c.family()] = true
	}

	for _, c := range sample {
		delete(left, c.family())
	}

	stages, elsewhere := map[string][]string{}, map[string]bool{}

	for _, c := range sample {
		elsewhere[c.what()] = true
	}

	for _, stage := range Stages() {
		for c := range left {
			if c.Stage == stage {
				stages[c.what()] = append(stages[c.what()], string(stage))
			}
		}
	}

	var named []string

	for _, what := range slices.Sorted(maps.Keys(stages)) {
		if elsewhere[what] {
			named = append(named, what+" ("+strings.Join(stages[what], ", ")+")")
		} else {
			named = append(named, what)
		}
	}

	return named
}

// shard is where a case belongs, whatever other cases there are.
func shard(c Case, shards int) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, c.String())

	return int(h.Sum32() % uint32(shards)) //nolint:gosec // both are small
}

// empty tells whether nothing is left. A queue that was never filled may have anything.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	if q.waiting == nil {
		return false
	}

	for _, left := range q.waiting {
		if len(left) > 0 {
			return false
		}
	}

	return true
}

// after tells whether anything is left for a stage after this one, destruction aside: every life ends with it.
func (q *queue) after(stage Stage) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	for _, later := range Stages()[slices.Index(Stages(), stage)+1:] {
		// What is destroyed is a stack that has gone through all.
		if len(q.waiting[later]) > 0 {
			return true
		}
	}

	return false
}

func (q *queue) take(stage Stage) (attempt, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	left := q.waiting[stage]
	if len(left) == 0 {
		return attempt{}, false
	}

	q.waiting[stage] = left[1:]

	return left[0], true
}

func (q *queue) put(a attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[a.Stage] = append(q.waiting[a.Stage], a)
}

// Of are the results with a verdict, in a steady order.
func Of(results []Result, verdict Verdict) []Result {
	of := slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Verdict != verdict })
	slices.SortFunc(of, func(a, b Result) int { return cmp.Compare(a.Case.String(), b.Case.String()) })

	return of
}
