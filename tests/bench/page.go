package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Where the tables stand in the page, between two comments.
const (
	tablesBegin = "<!-- Written by go run ./tests/bench --docs: do not edit. -->\n"
	tablesEnd   = "<!-- Here ends what is written by it. -->\n"
)

// chartHosts is how many hosts the clusters of the chart have.
const chartHosts = 1

// publish writes the tables and the chart of the page on benchmarks.
func (r *Report) publish(docs string) error {
	page := filepath.Join(docs, "benchmarks.md")

	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}

	before, rest, begins := strings.Cut(string(text), tablesBegin)
	_, after, ends := strings.Cut(rest, tablesEnd)

	if !begins || !ends {
		return fmt.Errorf("%s has no place for the tables: it must hold the lines %q and %q", page,
			strings.TrimSpace(tablesBegin), strings.TrimSpace(tablesEnd))
	}

	var tables strings.Builder
	r.show(&tables)

	said := fmt.Sprintf(
		"\n![Seconds by number of nodes](speed.svg)\n\nMeasured on %s, %d cores, `--parallel %d`, `%s=true`, %s.\n\n",
		r.Began.Format("2006-01-02"), r.Cores, r.Results[0].Parallel, parallelDiff, r.Providers)
	if err := os.WriteFile(page, []byte(before+tablesBegin+said+tables.String()+tablesEnd+after), 0o644); err != nil { //nolint:gosec // for everybody to read
		return err
	}

	return r.chart(filepath.Join(docs, "speed.svg"), chartHosts)
}
