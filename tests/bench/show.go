package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/lab/world"
)

// show writes what the results say as tables in Markdown: whether the targets are met first, then what they were
// measured by.
func (r *Report) show(out io.Writer) {
	for _, table := range []struct {
		title string
		of    func(io.Writer)
	}{
		{"The targets", r.targets},
		{"Seconds of each command, as the operator waits; of a creation, until every node is ready", r.times},
		{"Creations", r.creations},
		{"Calls of a creation, on one host, for each node more", r.calls},
		{"The state, and how often it is saved", r.saves},
		{"Next to Terraform with the same providers, on one host: seconds of each command", r.terraform},
		{"The engine alone: the same resources, registered by a program that does nothing else", r.bare},
		{"Without any setting, instead of those above: seconds of each command", r.plain},
		{"The most memory (MiB), and the time computed (seconds)", r.costs},
	} {
		fmt.Fprintf(out, "**%s**\n\n", table.title)
		table.of(out)
		fmt.Fprintln(out)
	}
}

// of returns the clusters of Talos of a size, one for each number of hosts.
func (r *Report) of(nodes int) []Result {
	var found []Result

	for _, result := range r.Results {
		if result.Kind == spec.DistributionTalos && result.Nodes == nodes && !result.Plain {
			found = append(found, result)
		}
	}

	return found
}

// worst is the largest of a measure over the clusters of a size; 0 when there are none.
func (r *Report) worst(nodes int, measure func(Result) float64) float64 {
	most := 0.0
	for _, result := range r.of(nodes) {
		most = max(most, measure(result))
	}

	return most
}

// targets is a table of what was to be reached, and what was.
func (r *Report) targets(out io.Writer) {
	heading(out, "Target", "at most", "measured, the worst of all numbers of hosts")

	ratio := func(result Result) float64 { return result.step(Create).ratio() }
	wall := func(stage Stage) func(Result) float64 {
		return func(result Result) float64 { return result.step(stage).Wall.Seconds() }
	}

	row := func(target string, most, measured float64, unit string) {
		if measured > 0 {
			line(out, target, fmt.Sprintf("%.2f%s", most, unit), fmt.Sprintf("%.2f%s", measured, unit))
		}
	}

	row("creation of 5 nodes, of the critical path", 1.10, r.worst(5, ratio), "")
	row("creation of 20 nodes, of the critical path", 1.15, r.worst(20, ratio), "")
	row("preview of 200 nodes without a change", 15, r.worst(200, wall(Preview)), " s")

	for _, stage := range []Stage{Create, Again, Preview, Refresh, Destroy} {
		if small := r.worst(50, wall(stage)); small > 0 {
			row(string(stage)+", 200 nodes instead of 50", 4, r.worst(200, wall(stage))/small, " times")
		}
	}
}

// times is a table of how long each stage took, in seconds.
func (r *Report) times(out io.Writer) {
	heading(out, "Nodes x hosts", "create", "up, no change", "preview", "refresh", "destroy")

	for _, result := range r.Results {
		if result.Plain {
			continue
		}

		cells := []string{result.String()}
		for _, stage := range []Stage{Create, Again, Preview, Refresh, Destroy} {
			cells = append(cells, seconds(result.slowest(stage)))
		}

		line(out, cells...)
	}
}

// creations is a table of creations: against the critical path, and what was asked for them.
func (r *Report) creations(out io.Writer) {
	heading(out, "Nodes x hosts", "critical path", "first request to last", "ratio", "engine", "calls per node",
		"polls per node", "MiB per host")

	for _, result := range r.Results {
		if result.Plain {
			continue
		}

		nodes := float64(result.Nodes)

		for _, s := range result.Steps {
			if s.Stage != Create {
				continue
			}

			line(out, result.String(), seconds(s.CriticalPath), seconds(s.Worked), fmt.Sprintf("%.2f", s.ratio()),
				seconds(s.Engine),
				fmt.Sprintf("%.1f", float64(sum(s.Calls))/nodes), fmt.Sprintf("%.1f", float64(sum(s.Polls))/nodes),
				result.downloaded())
		}
	}
}

// downloaded are the MiB that each host fetched: one number where all fetched the same.
func (r Result) downloaded() string {
	var all []string
	for _, bytes := range slices.Sorted(maps.Values(r.Downloads)) {
		all = append(all, fmt.Sprint(bytes/world.MiB))
	}

	return strings.Join(slices.Compact(all), ", ")
}

// calls is a table of what each further node asks for, by kind, from each size to the next.
func (r *Report) calls(out io.Writer) {
	sizes := slices.DeleteFunc(slices.Clone(r.Results),
		func(result Result) bool { return !result.oneHost() })
	cells, kinds := []string{"Kind"}, map[string]bool{}

	for i, size := range sizes {
		for kind := range size.step(Create).Calls {
			kinds[kind] = true
		}

		if i > 0 {
			cells = append(cells, fmt.Sprintf("from %d to %d", sizes[i-1].Nodes, size.Nodes))
		}
	}

	if len(sizes) < 2 {
		return
	}

	heading(out, cells...)

	row := func(name string, of func(Step) int) {
		cells, any := []string{name}, false

		for i := 1; i < len(sizes); i++ {
			more := float64(of(sizes[i].step(Create))-of(sizes[i-1].step(Create))) / float64(sizes[i].Nodes-sizes[i-1].Nodes)
			cells, any = append(cells, fmt.Sprintf("%.2f", more)), any || more != 0
		}

		if any {
			line(out, cells...)
		}
	}

	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		row("`"+kind+"`", func(s Step) int { return s.Calls[kind] })
	}

	row("all", func(s Step) int { return sum(s.Calls) })
}

// saves is a table of how large states are, and of how often they are saved.
func (r *Report) saves(out io.Writer) {
	heading(out, "Nodes x hosts", "resources", "KiB", "KiB per node", "saves, create", "per node", "MiB", "saves, destroy",
		"per node", "MiB")

	for _, result := range r.Results {
		if !result.oneHost() {
			continue
		}

		nodes := float64(result.Nodes)
		cells := []string{
			result.String(), fmt.Sprint(result.State.Resources), fmt.Sprint(result.State.Bytes >> 10),
			fmt.Sprintf("%.1f", float64(result.State.Bytes)/1024/nodes),
		}

		for _, stage := range []Stage{Create, Destroy} {
			saved := result.step(stage).Saves
			cells = append(cells, fmt.Sprint(saved.Count), fmt.Sprintf("%.1f", float64(saved.Count)/nodes),
				fmt.Sprint(saved.Bytes>>20))
		}

		line(out, cells...)
	}
}

// terraform is a table of how long each stage takes here and with Terraform.
func (r *Report) terraform(out io.Writer) {
	stages := []Stage{First, Create, Preview, Refresh, Destroy}
	cells := []string{"Nodes x hosts"}

	for _, stage := range stages {
		cells = append(cells, string(stage), "Terraform", "ratio")
	}

	heading(out, cells...)

	for _, result := range r.Results {
		if len(result.Terraform) == 0 {
			continue
		}

		cells := []string{result.String()}

		for _, stage := range stages {
			ours, theirs := result.step(stage).Wall, first(result.Terraform, stage).Wall
			cells = append(cells, seconds(ours), seconds(theirs), fmt.Sprintf("%.2f", ours.Seconds()/theirs.Seconds()))
		}

		line(out, cells...)
	}
}

// bare is a table of what the engine takes with a program that only registers resources, and with ours.
func (r *Report) bare(out io.Writer) {
	cells := []string{"Nodes x hosts"}
	for _, stage := range []Stage{Create, Destroy} {
		cells = append(cells, string(stage)+", s", "alone, s", "saves", "alone", "engine's computing, s", "alone, s", "ratio")
	}

	heading(out, cells...)

	for _, result := range r.Results {
		if len(result.Bare) == 0 {
			continue
		}

		cells := []string{result.String()}

		for _, stage := range []Stage{Create, Destroy} {
			ours, alone := result.step(stage), first(result.Bare, stage)
			computed, least := ours.Processes[Engine].CPU, alone.Processes[Engine].CPU

			cells = append(cells, seconds(ours.Wall), seconds(alone.Wall), fmt.Sprint(ours.Saves.Count),
				fmt.Sprint(alone.Saves.Count), seconds(computed), seconds(least),
				fmt.Sprintf("%.2f", computed.Seconds()/least.Seconds()))
		}

		line(out, cells...)
	}
}

// plain is a table of how long each stage takes an operator who sets nothing.
func (r *Report) plain(out io.Writer) {
	heading(out, "Nodes x hosts", "create", "up, no change", "preview", "refresh", "destroy")

	for _, result := range r.Results {
		if !result.Plain {
			continue
		}

		cells := []string{result.String()}
		for _, stage := range []Stage{Create, Again, Preview, Refresh, Destroy} {
			cells = append(cells, seconds(result.slowest(stage)))
		}

		line(out, cells...)
	}
}

// costs is a table of what the processes used.
func (r *Report) costs(out io.Writer) {
	processes := []Process{Engine, Program, Proxmox, Talos}
	cells := []string{"Nodes x hosts, command"}

	for _, p := range processes {
		cells = append(cells, string(p)+", MiB", "s")
	}

	heading(out, cells...)

	for _, result := range r.Results {
		// On how many hosts makes no difference to it.
		if result.Hosts > 1 || result.Clusters > 1 || result.Plain {
			continue
		}

		for _, stage := range []Stage{Create, Preview, Refresh, Destroy} {
			s := result.step(stage)
			if s.Wall == 0 {
				continue
			}

			cells := []string{result.String() + ", " + string(stage)}
			for _, p := range processes {
				cells = append(cells, fmt.Sprint(s.Processes[p].PeakMiB), seconds(s.Processes[p].CPU))
			}

			line(out, cells...)
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
