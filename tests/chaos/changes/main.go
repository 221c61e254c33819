// Command changes takes clusters through random sequences of changes while things go wrong, and holds that etcd never
// loses its quorum, that nodes go down in turns, and that each preview told what happened. It needs no Proxmox VE: it
// runs on the lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"talos-proxmox/tests/chaos/sequence"
	"talos-proxmox/tests/command"
	"talos-proxmox/tests/engine"
)

const usage = `Change clusters at random while things go wrong, and see that they stay whole.

  go run ./tests/chaos/changes --seeds 200 --parallel 2 --results changes.json   two hundred sequences; go on where an earlier run was
  go run ./tests/chaos/changes --seed 17                                         this one again
  go run ./tests/chaos/changes --seed 17 --plan                                  what it would do; nothing is started
  go run ./tests/chaos/changes --results changes.json --list                     what there is so far

Flags:
`

type options struct {
	many    sequence.Many
	first   uint64
	seeds   int
	results string
	again   bool
	list    bool
	plan    bool
}

func main() { command.Main(run) }

func parse(args []string) (*options, error) {
	o := &options{}

	flags := pflag.NewFlagSet("changes", pflag.ContinueOnError)
	flags.Uint64Var(&o.first, "seed", 1, "the first seed")
	flags.IntVar(&o.seeds, "seeds", 1, "how many seeds, from the first on")
	flags.IntVar(&o.many.Steps, "steps", 5, "how many changes a sequence has")
	flags.IntVar(&o.many.Parallel, "parallel", 1, "how many labs at the same time; each takes a core")
	flags.StringVar(&o.results, "results", "", "a file for the results; seeds that are in it are not run again")
	flags.BoolVar(&o.again, "again", false, "run those again that failed, all the same")
	flags.BoolVar(&o.list, "list", false, "show what is in the results file, and run nothing")
	flags.BoolVar(&o.plan, "plan", false, "show what the seeds would do, and run nothing")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}

	return o, flags.Parse(args)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}

	if o.plan {
		o.show(out)

		return nil
	}

	file := command.Results[sequence.Result]{
		Path: o.results,
		Key:  func(r sequence.Result) string { return fmt.Sprint(r.Seed) },
	}

	all, err := file.Read()
	if err != nil {
		return err
	}

	if !o.list {
		// What there is so far is shown, whatever ended the run.
		all, err = o.run(ctx, all, file, out)
	}

	failed := sequence.FailedOf(all)

	fmt.Fprintln(out)

	for _, r := range failed {
		fmt.Fprintf(out, "FAILED seed %d (%s): go run ./tests/chaos/changes --seed %d --steps %d\n%s\n\n", r.Seed, r.Begin, r.Seed,
			o.many.Steps, r.Failed)
	}

	if err := errors.Join(err, sequence.Table(out, all)); err != nil {
		return err
	}

	if len(failed) > 0 {
		return fmt.Errorf("%d of %d sequences failed", len(failed), len(all))
	}

	return nil
}

// show shows what the seeds would do.
func (o *options) show(out io.Writer) {
	for n := range o.seeds {
		seed := o.first + uint64(n) //nolint:gosec // a count is not negative
		first, steps := sequence.Draw(seed, o.many.Steps)

		fmt.Fprintf(out, "seed %d: %s\n", seed, first)

		for i, s := range steps {
			fmt.Fprintf(out, "%4d  %s\n", i+1, s)
		}
	}
}

// run runs the sequences that are left, and returns all results.
func (o *options) run(ctx context.Context, all []sequence.Result, file command.Results[sequence.Result],
	out io.Writer,
) ([]sequence.Result, error) {
	for n := range o.seeds {
		seed := o.first + uint64(n) //nolint:gosec // a count is not negative
		same := func(r sequence.Result) bool { return r.Seed == seed }

		if i := slices.IndexFunc(all, same); i < 0 || o.again && all[i].Failed != "" {
			o.many.Seeds = append(o.many.Seeds, seed)
			all = slices.DeleteFunc(all, same)
		}
	}

	e, err := engine.Open(ctx, engine.Options{Log: out})
	if err != nil {
		return all, err
	}

	dir, err := os.MkdirTemp("", "changes-")
	if err != nil {
		return all, err
	}
	defer os.RemoveAll(dir)

	var lost error

	o.many.Engine, o.many.Dir, o.many.Log = e, dir, out
	o.many.Results = func(r sequence.Result) {
		all = append(all, r)
		lost = errors.Join(lost, file.Append(r))
	}

	err = o.many.Run(ctx)

	return all, errors.Join(err, lost)
}
