package placement

import (
	"fmt"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// problem says what is missing, host by host.
func (pl *placer) problem() spec.Problem {
	return spec.Problem{
		Path: "proxmox.hosts", Rule: "have no room for " + plan.Count(pl.missing, "node"), Value: plan.Count(len(pl.hosts),
			"host"),
		Remedy: "add hosts or capacity, lower placement.reserve, or use fewer or smaller nodes",
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
			rows = append(rows, []string{h.Name, "not set", "-", cell(h.Used), cell(asked), "-"})

			continue
		}

		short := asked.Minus(h.Capacity.Minus(h.Reserve))
		missing := "-"

		if short.VCPU > 0 || short.MemoryMiB > 0 {
			missing = cell(spec.Resources{VCPU: max(0, short.VCPU), MemoryMiB: max(0, short.MemoryMiB)})
		}

		rows = append(rows, []string{h.Name, cell(h.Capacity), cell(h.Reserve), cell(h.Used), cell(asked), missing})
	}

	return plan.Align(rows)
}
