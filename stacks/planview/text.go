// Package planview shows a plan to people, as text and as a picture. It starts nothing and asks no server.
package planview

import (
	"fmt"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosimage"
)

// Text shows a plan: its nodes, what the hosts have then, the order of the steps, and where each decision came from.
// The spec is the one that the plan was made of.
func Text(spec spec.Spec, p *plan.Plan) (string, error) {
	images, err := images(p)
	if err != nil {
		return "", err
	}

	var b strings.Builder

	fmt.Fprintf(&b, "%s\n\n", headline(p))
	section(&b, "Nodes", plan.Align(nodes(p)))
	section(&b, "Hosts", hosts(p))
	section(&b, "Steps", steps(p))
	section(&b, "Images", images)
	section(&b, "Decisions", decisions(spec, p))

	if len(p.Warnings) > 0 {
		lines := ""
		for _, w := range p.Warnings {
			lines += w.String() + "\n"
		}

		section(&b, "Warnings", lines)
	}

	return strings.TrimRight(b.String(), "\n") + "\n", nil
}

func section(b *strings.Builder, title, text string) {
	fmt.Fprintf(b, "%s\n\n", title)

	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("  "+line, " \n") + "\n")
	}

	b.WriteString("\n")
}

func headline(p *plan.Plan) string {
	s := fmt.Sprintf("Cluster %s: %s", p.Cluster, strings.Join(p.Runs(), ", "))

	s += fmt.Sprintf(", %s on %s, network %s", count(len(p.Nodes()), "node"), count(len(p.Hosts), "host"), p.Network)

	return s + "\n" + "Kubernetes API: " + endpoint(p)
}

func endpoint(p *plan.Plan) string {
	switch {
	case p.Endpoint != "":
		return p.Endpoint
	default:
		return "the first control plane, once its address is known"
	}
}

func nodes(p *plan.Plan) [][]string {
	rows := [][]string{{"name", "role", "host", "VMID", "MAC", "address", "shape", "GPU"}}

	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			gpu := ""
			if n.GPU != nil {
				gpu = n.GPU.BDF
			}

			rows = append(rows, []string{
				n.Name, string(n.Role), n.Host, strconv.Itoa(n.VMID), n.MAC, address(n, "-"), shape(n),
				gpu,
			})
		}
	}

	return rows
}

func address(n plan.Node, unknown string) string {
	if !n.Address.IsValid() {
		return unknown
	}

	return n.Address.String()
}

func shape(n plan.Node) string {
	s := fmt.Sprintf("%d vCPU, %s, %d GiB", n.Cores, memory(n.MemoryMiB), n.Disks[0].SizeGiB)
	for _, d := range n.Disks[1:] {
		s += fmt.Sprintf(" + %d GiB", d.SizeGiB)
	}

	return s
}

// memory in GiB where it comes out even.
func memory(mib int) string {
	if mib%1024 == 0 {
		return strconv.Itoa(mib/1024) + " GiB"
	}

	return strconv.Itoa(mib) + " MiB"
}

const barWidth = 32

func hosts(p *plan.Plan) string {
	var rows [][]string

	for _, h := range p.Hosts {
		slots := ""
		if h.Slots >= 0 {
			slots = "room for " + count(h.Slots, "worker")
		}

		rows = append(rows,
			[]string{
				h.Name, "vCPU", bar(h.Limited, h.Used.VCPU, h.Reserve.VCPU, h.Capacity.VCPU),
				ratio(h.Limited, h.Used.VCPU, h.Capacity.VCPU, strconv.Itoa), slots,
			},
			[]string{
				"", "memory", bar(h.Limited, h.Used.MemoryMiB, h.Reserve.MemoryMiB, h.Capacity.MemoryMiB),
				ratio(h.Limited, h.Used.MemoryMiB, h.Capacity.MemoryMiB, memory),
			})
	}

	return plan.Align(rows) + "\n# used   / kept in reserve   . free\n"
}

func bar(limited bool, used, reserve, capacity int) string {
	if !limited || capacity == 0 {
		return strings.Repeat(" ", barWidth+2)
	}

	u := (used*barWidth + capacity - 1) / capacity
	r := min((reserve*barWidth+capacity-1)/capacity, barWidth-u)

	return "[" + strings.Repeat("#", u) + strings.Repeat(".", barWidth-u-r) + strings.Repeat("/", r) + "]"
}

func ratio(limited bool, used, capacity int, write func(int) string) string {
	if !limited {
		return write(used) + " of what is there"
	}

	return fmt.Sprintf("%s of %s", write(used), write(capacity))
}

func steps(p *plan.Plan) string {
	lines := ""
	for i, s := range p.Steps {
		lines += fmt.Sprintf("%2d. %s\n", i+1, s.What)
	}

	return lines
}

// images lists what the nodes boot from and install from.
func images(p *plan.Plan) (string, error) {
	rows := [][]string{{"for", "boots", "schematic", "installs"}}
	seen := map[string]bool{}

	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			who := "pool " + pool.Name
			if pool.Image.Scope == plan.PerNode {
				who = n.Name
			}

			if seen[who] {
				continue
			}

			seen[who] = true

			if p.Distribution == spec.DistributionK3s {
				rows = append(rows, []string{who, boots(p, pool.Image), "-", p.Runs()[0]})

				continue
			}

			installer, err := talosimage.Installer(p, pool.Image, n)
			if err != nil {
				return "", err
			}

			id := pool.Image.SchematicID
			if pool.Image.FactoryURL != "" || id == "" && len(pool.Image.Extensions) > 0 {
				if _, id, err = talosimage.Schematic(p, pool.Image, n); err != nil {
					return "", err
				}
			}

			if id != "" {
				installer = strings.Replace(installer, id, short(id), 1)
			}

			if p.Bootstrap == spec.BootstrapExternal {
				installer = "-"
			}

			rows = append(rows, []string{who, boots(p, pool.Image), short(id), installer})
		}
	}

	return plan.Align(rows), nil
}

func boots(p *plan.Plan, b plan.BootImage) string {
	switch {
	case b.Template != "":
		return "template " + b.Template
	case b.Volume+b.URL != "":
		return b.Volume + b.URL
	default:
		signed := ""
		if b.SecureBoot {
			signed = " for SecureBoot"
		}

		return fmt.Sprintf("%s %s%s from the factory", p.Platform, b.Format, signed)
	}
}

// short is the beginning of a schematic's id.
func short(id string) string {
	if id == "" {
		return "-"
	}

	return id[:12]
}

// decisions lists what came from where, pool by pool. What a pool leaves at its defaults is one paragraph.
func decisions(spec spec.Spec, p *plan.Plan) string {
	var (
		b        strings.Builder
		rows     [][]string
		defaults []string
		of       string
	)

	flush := func() {
		if of != "" {
			fmt.Fprintf(&b, "%s\n%s", of, indent(plan.Align(rows)+wrap("the rest by default: ", defaults)))
		}

		rows, defaults = nil, nil
	}

	for _, d := range plan.Explain(spec, p) {
		if d.Of != of {
			flush()

			if of != "" {
				b.WriteString("\n")
			}

			of = d.Of
		}

		if d.Of != "cluster" && d.From == plan.ByDefault {
			defaults = append(defaults, d.What+" "+d.Value)

			continue
		}

		rows = append(rows, []string{d.What, d.Value, "<- " + d.From})
	}

	flush()

	return b.String()
}

// wrap writes words as lines of readable length.
func wrap(start string, words []string) string {
	const width = 100

	var b strings.Builder

	line := start

	for i, w := range words {
		if i < len(words)-1 {
			w += ", "
		}

		if len(line)+len(w) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")

			line = ""
		}

		line += w
	}

	if len(words) == 0 {
		return ""
	}

	return b.String() + line + "\n"
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}

	return b.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return strconv.Itoa(n) + " " + noun + "s"
}
