// Command bench measures how long clusters take, on the lab: their creation, updates and previews that change nothing,
// refresh and destruction, at several sizes; and what that costs. It writes the results, a table and a chart of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"talos-proxmox/tests/command"
	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/timeline"
	"talos-proxmox/tests/rehearsal"
)

const usage = `Measure how long clusters take on the lab, and what that costs.

  go run ./tests/bench                             all of it, which takes half an hour
  go run ./tests/bench --only talos-5x1            five nodes on one host
  go run ./tests/bench --results bench.json        go on where an earlier run was

Flags:
`

type options struct {
	only      []string
	results   string
	docs      bool
	profiles  string
	parallel  int
	latencies timeline.Latencies
}

func main() { command.Main(run) }

func parse(args []string) (*options, error) {
	o := &options{latencies: timeline.DefaultLatencies()}

	var slower map[string]string

	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.StringSliceVar(&o.only, "only", names(), "the rows to measure")
	flags.StringVar(&o.results, "results", "", "a file for the results; rows that are in it are not measured again")
	flags.BoolVar(&o.docs, "docs", false, "write the tables to stacks/docs/benchmarks.md, and the chart speed.svg")
	flags.StringVar(&o.profiles, "profiles", "",
		"write profiles of the engine to this directory, which takes time of its own")
	flags.IntVar(&o.parallel, "parallel", 64, "how many operations the engine may have at a time, pulumi's own --parallel")
	flags.StringToStringVar(&slower, "latency", nil, "how long things take in the lab, for example clone=10s,boot=20s")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}

	if err := flags.Parse(args); err != nil {
		return nil, err
	}

	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("--only: there is no row %q: choose from %s", name, strings.Join(names(), ", "))
		}
	}

	return o, o.latencies.Set(slower)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}

	report, err := readReport(o.results)
	if err != nil {
		return err
	}

	root, err := rehearsal.Root()
	if err != nil {
		return err
	}

	err = o.measure(ctx, root, report, out)

	// What there is so far is shown, whatever ended the run.
	if len(report.Results) == 0 {
		return err
	}

	fmt.Fprintln(out)
	report.show(out)

	if o.docs {
		err = errors.Join(err, report.publish(filepath.Join(root, "stacks", "docs")))
	}

	return err
}

// measure measures the rows that are asked for and not there yet.
func (o *options) measure(ctx context.Context, root string, report *Report, out io.Writer) (err error) {
	var left []Row

	for _, row := range rows() {
		if slices.Contains(o.only, row.String()) && !report.has(row) {
			left = append(left, row)
		}
	}

	if len(left) == 0 {
		return nil
	}

	b := &bench{root: root, parallel: o.parallel, latencies: o.latencies, profiles: o.profiles, out: out}

	if b.engine, err = engine.Open(ctx, engine.Options{Log: out}); err != nil {
		return err
	}

	if with := b.engine.ProviderVersions(); report.Providers == "" {
		report.Providers = with
	} else if report.Providers != with {
		return fmt.Errorf("the earlier results were measured with %s, these would be with %s: write them to another file",
			report.Providers, with)
	}

	if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)

	if err := b.prepare(ctx); err != nil {
		return err
	}

	if slices.ContainsFunc(left, Row.compared) {
		if err := b.findTerraform(ctx); err != nil {
			return err
		}
	}

	for _, row := range left {
		result, err := b.row(ctx, row)
		if err != nil {
			return err
		}

		report.Results = append(report.Results, result)

		if o.results != "" {
			if err := report.write(o.results); err != nil {
				return err
			}
		}
	}

	return nil
}
