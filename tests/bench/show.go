package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"talos-proxmox/tests/lab/world"
)

// show writes the tables, as Markdown, and the chart where one is asked for.
func (r *Report) show(out io.Writer, chart string) error {
	if len(r.Results) == 0 {
		return nil
	}

	for _, table := range []func(io.Writer){r.times, r.creations, r.costs} {
		fmt.Fprintln(out)
		table(out)
	}

	if chart == "" {
		return nil
	}

	return r.chart(chart, 3)
}

// times is a table of how long each stage took, in seconds.
func (r *Report) times(out io.Writer) {
	heading(out, "Row", "create", "up, no change", "preview", "refresh", "destroy")

	for _, result := range r.Results {
		cells := []string{result.String()}
		for _, stage := range []Stage{Create, Again, Preview, Refresh, Destroy} {
			cells = append(cells, seconds(result.step(stage).Wall))
		}

		line(out, cells...)
	}
}

// creations is a table of creations: against the critical path, and what was asked for it.
func (r *Report) creations(out io.Writer) {
	heading(out, "Row", "critical path", "first to last request", "ratio", "engine", "calls per node", "polls per node", "MiB per host")

	for _, result := range r.Results {
		nodes := float64(result.Nodes)

		for _, s := range result.Steps {
			if s.Stage != Create {
				continue
			}

			line(out, result.String(), seconds(s.CriticalPath), seconds(s.Worked), fmt.Sprintf("%.2f", s.ratio()), seconds(s.Engine),
				fmt.Sprintf("%.1f", float64(sum(s.Calls))/nodes), fmt.Sprintf("%.1f", float64(sum(s.Polls))/nodes), result.downloaded())
		}
	}
}

// downloaded are the MiB that each host fetched, which is one number where all fetched the same.
func (r Result) downloaded() string {
	var all []string
	for _, host := range slices.Sorted(maps.Keys(r.Downloads)) {
		all = append(all, fmt.Sprint(r.Downloads[host]/world.MiB))
	}

	slices.Sort(all)

	return strings.Join(slices.Compact(all), ", ")
}

// costs is a table of what the processes used in the creation, the preview and the refresh: the most memory, and the time computed.
func (r *Report) costs(out io.Writer) {
	processes := []Process{Engine, Program, Proxmox, Talos}
	cells := []string{"Row, stage"}

	for _, p := range processes {
		cells = append(cells, string(p)+", MiB", "CPU s")
	}

	heading(out, cells...)

	for _, result := range r.Results {
		for _, stage := range []Stage{Create, Preview, Refresh, Destroy} {
			s := result.step(stage)
			cells := []string{result.String() + ", " + string(stage)}

			for _, p := range processes {
				cells = append(cells, fmt.Sprint(s.Processes[p].PeakMiB), seconds(s.Processes[p].CPU))
			}

			if s.Wall > 0 {
				line(out, cells...)
			}
		}
	}
}

func heading(out io.Writer, cells ...string) {
	line(out, cells...)
	fmt.Fprintln(out, "|---"+strings.Repeat("|--:", len(cells)-1)+"|")
}

func line(out io.Writer, cells ...string) {
	fmt.Fprintln(out, "| "+strings.Join(cells, " | ")+" |")
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}

	return fmt.Sprintf("%.1f", d.Seconds())
}
