package plan

import (
	"fmt"
	"strings"

	"talos-proxmox/components/spec"
)

// problem says what is missing, host by host.
func (pl *placer) problem() spec.Problem {
	return spec.Problem{
		Path: "proxmox.hosts", Rule: "have no room for " + count(pl.missing, "node"), Value: count(len(pl.hosts), "host"),
		Remedy: "add hosts or capacity, lower placement.reserve, or ask for fewer or smaller nodes",
		Detail: pl.table(),
	}
}

// table shows vCPU and memory of each host: what it has, what is kept, what the placed nodes use, what all would use.
func (pl *placer) table() string {
	rows := [][]string{{"host", "capacity", "reserve", "used", "asked", "missing"}}
	cell := func(r spec.Resources) string { return fmt.Sprintf("%d vCPU %d MiB", r.VCPU, r.MemoryMiB) }

	for i, h := range pl.hosts {
		asked := h.Used.Plus(pl.extra[i])

		if !h.Limited {
			rows = append(rows, []string{h.Name, "not stated", "-", cell(h.Used), cell(asked), "-"})

			continue
		}

		short := asked.Minus(h.Capacity.Minus(h.Reserve))
		missing := "-"

		if short.VCPU > 0 || short.MemoryMiB > 0 {
			missing = cell(spec.Resources{VCPU: max(0, short.VCPU), MemoryMiB: max(0, short.MemoryMiB)})
		}

		rows = append(rows, []string{h.Name, cell(h.Capacity), cell(h.Reserve), cell(h.Used), cell(asked), missing})
	}

	return Align(rows)
}

// Align writes rows as columns.
func Align(rows [][]string) string {
	var widths []int

	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}

			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}

	var b strings.Builder

	for _, row := range rows {
		line := ""
		for i, cell := range row {
			line += cell + strings.Repeat(" ", widths[i]-len([]rune(cell))+2)
		}

		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}

	return b.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}

	return fmt.Sprintf("%d %ss", n, noun)
}

// placer carries the hosts while nodes are placed.
type placer struct {
	*resolver
	hosts []HostAllocation
	index map[string]int
	// missing is how many nodes have found no room, extra what they would need if the hosts had it.
	missing int
	extra   map[int]spec.Resources
}
