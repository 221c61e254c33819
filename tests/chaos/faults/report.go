package faults

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Table prints how the cases ended: a row for each stack and stage, or for each effect.
func Table(out io.Writer, results []Result) error {
	for _, by := range []struct {
		heading string
		of      func(Result) string
		order   []string
	}{
		{"STACK, STAGE", byStage, stagesOfStacks()},
		{"EFFECT", func(r Result) string { return string(r.Case.Effect) }, effects()},
	} {
		if err := table(out, by.heading, by.of, by.order, results); err != nil {
			return err
		}

		fmt.Fprintln(out)
	}

	return nil
}

func byStage(r Result) string { return r.Case.Stack + ", " + string(r.Case.Stage) }

func table(out io.Writer, heading string, of func(Result) string, order []string, results []Result) error {
	counts, total := map[string]map[Verdict]int{}, map[Verdict]int{}

	for _, r := range results {
		if counts[of(r)] == nil {
			counts[of(r)] = map[Verdict]int{}
		}

		counts[of(r)][r.Verdict]++
		total[r.Verdict]++
	}

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, heading+"\tCASES")

	for _, v := range verdicts {
		fmt.Fprintf(w, "\t%s", v)
	}

	fmt.Fprintln(w)

	row := func(name string, of map[Verdict]int) {
		sum, cells := 0, ""

		for _, n := range of {
			sum += n
		}

		for _, v := range verdicts {
			cells += fmt.Sprintf("\t%d", of[v])
		}

		fmt.Fprintf(w, "%s\t%d%s\n", name, sum, cells)
	}

	for _, name := range order {
		if counts[name] != nil {
			row(name, counts[name])
		}
	}

	row("all", total)

	return w.Flush()
}

// verdicts are the columns: each verdict has one.
var verdicts = []Verdict{Absorbed, Again, Refreshed, Imported, Deleted, Recreated, Missed, Failed}

func stagesOfStacks() []string {
	var all []string

	for _, stack := range Stacks() {
		for _, stage := range StagesOf(stack) {
			all = append(all, stack+", "+string(stage))
		}
	}

	return all
}

func effects() []string {
	var all []string
	for e := range plants {
		all = append(all, string(e))
	}

	for e := range events {
		all = append(all, string(e))
	}

	slices.Sort(all)

	return all
}
