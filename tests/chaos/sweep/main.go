// Command sweep breaks every kind of call that a stack's life makes, in every way that it can break, one at a time, and
// prints how the stack came out of it. What fails is a defect: of the program, or of a provider. It needs no Proxmox
// VE: it runs on the lab.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"talos-proxmox/tests/chaos/faults"
	"talos-proxmox/tests/command"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/world"
)

const usage = `Break every kind of call of a stack's life, one at a time, and see that nothing is lost.

  go run ./tests/chaos/sweep                    all of it, which takes hours
  go run ./tests/chaos/sweep --shard 2/8        an eighth of it
  go run ./tests/chaos/sweep --only Bootstrap   the cases whose text holds that
  go run ./tests/chaos/sweep --results s.json   go on where an earlier sweep was
  go run ./tests/chaos/sweep --kills 50         kill the pulumi CLI instead, fifty times

Flags:
`

type options struct {
	sweep   faults.Sweep
	shard   string
	stacks  []string
	stages  []string
	only    string
	results string
	proxmox string
	again   bool
	list    bool
	kills   int
}

func main() { command.Main(run) }

func parse(args []string) (*options, error) {
	o := &options{}

	flags := pflag.NewFlagSet("sweep", pflag.ContinueOnError)
	flags.StringVar(&o.shard, "shard", "1/1", "which part of how many")
	flags.StringSliceVar(&o.stacks, "stack", faults.Stacks(), "the stacks to break things in")
	flags.StringSliceVar(&o.stages, "stage", nil,
		"the stages to break things in: create, scale-up, update, upgrade, replace, remove, teardown, destroy; absent: all")
	flags.StringVar(&o.only, "only", "", "run the cases whose text holds this")
	flags.Uint64Var(&o.sweep.Seed, "seed", 1, "gives the order of the cases, and the sample")
	flags.IntVar(&o.sweep.Sample, "sample", 0, "how many cases of each stack; 0: all")
	flags.IntVar(&o.sweep.Parallel, "parallel", 1, "how many labs at the same time; each takes a core")
	flags.StringVar(&o.results, "results", "", "a file for the results; cases that are in it are not run again")
	flags.StringVar(&o.proxmox, "proxmox", "", "the version of Proxmox VE that the labs are: 8.4 or 9.2, the default")
	flags.BoolVar(&o.again, "again", false, "run those again that failed or were missed, all the same")
	flags.BoolVar(&o.list, "list", false, "show what is in the results file, and run nothing")
	flags.IntVar(&o.kills, "kills", 0,
		"kill the pulumi CLI at so many moments, which the seeds from --seed on choose, instead of the cases")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}

	if err := flags.Parse(args); err != nil {
		return nil, err
	}

	if n, err := fmt.Sscanf(o.shard, "%d/%d", &o.sweep.Shard, &o.sweep.Shards); n != 2 || err != nil ||
		o.sweep.Shard < 1 || o.sweep.Shard > o.sweep.Shards {
		return nil, fmt.Errorf("--shard: %q is none: write 2/8 for the second of eight", o.shard)
	}

	var err error
	if o.sweep.Proxmox, err = world.ParseVersion(o.proxmox); err != nil {
		return nil, err
	}

	o.sweep.Shard--
	o.sweep.Stacks = o.stacks

	for _, s := range o.stages {
		o.sweep.Stages = append(o.sweep.Stages, faults.Stage(s))
	}

	if o.only != "" {
		o.sweep.Only = func(c faults.Case) bool { return strings.Contains(c.String(), o.only) }
	}

	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}

	if o.kills > 0 {
		return o.kill(ctx, out)
	}

	results := command.Results[faults.Result]{
		Path: o.results,
		Key:  func(r faults.Result) string { return r.Case.String() },
	}

	all, err := results.Read()
	if err != nil {
		return err
	}

	if o.again {
		all = slices.DeleteFunc(all, func(r faults.Result) bool {
			return r.Verdict == faults.Failed || r.Verdict == faults.Missed
		})
	}

	if !o.list {
		var failed error
		if o.sweep.Engine, err = engine.Open(ctx, engine.Options{Log: out}); err != nil {
			return err
		}

		if o.sweep.Dir, err = os.MkdirTemp("", "sweep-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.sweep.Dir)

		o.sweep.Done, o.sweep.Log = all, out
		o.sweep.Results = func(r faults.Result) {
			all = append(all, r)
			failed = errors.Join(failed, results.Append(r))
		}

		// What there is so far is shown, whatever ended the sweep.
		err = errors.Join(o.sweep.Run(ctx), failed)
	}

	fmt.Fprintln(out)

	failed := faults.Of(all, faults.Failed)
	for _, r := range failed {
		fmt.Fprintf(out, "FAILED %s\n%s\n\n", r.Case, r.Why)
	}

	missed := faults.Of(all, faults.Missed)
	for _, r := range missed {
		fmt.Fprintf(out, "missed %s: the call was not made (%d of the kind were)\n", r.Case, r.Seen)
	}

	if err := errors.Join(err, faults.Table(out, all)); err != nil {
		return err
	}

	if len(failed)+len(missed) > 0 {
		return fmt.Errorf("%d of %d cases failed, and %d tried nothing", len(failed), len(all), len(missed))
	}

	return nil
}

// kill runs the kills.
func (o *options) kill(ctx context.Context, out io.Writer) error {
	e, err := engine.Open(ctx, engine.Options{Log: out})
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "kills-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var (
		all    []faults.Killed
		failed []string
		lost   error
	)

	results := command.Results[faults.Killed]{Path: o.results}
	kills := faults.Kills{
		Engine: e, Dir: dir, Stacks: o.stacks, First: o.sweep.Seed, Count: o.kills,
		Parallel: o.sweep.Parallel, Log: out,
	}
	kills.Results = func(k faults.Killed) {
		all = append(all, k)

		if k.Verdict == faults.Failed {
			failed = append(failed, fmt.Sprintf("FAILED %s, %s at %s\n%s\n", k.Kill, k.Stage, k.Kind, k.Why))
		}

		lost = errors.Join(lost, results.Append(k))
	}

	err = kills.Run(ctx)

	fmt.Fprintln(out, "\n"+strings.Join(failed, "\n"))

	if err := errors.Join(err, lost, faults.KillTable(out, all)); err != nil {
		return err
	}

	if len(failed) > 0 {
		return fmt.Errorf("%d of %d kills failed", len(failed), len(all))
	}

	return nil
}
