package planview

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// Colours of the picture.
const (
	ink     = "#172033"
	faint   = "#66718a"
	rule    = "#dbe1ec"
	paper   = "#f4f6fb"
	free    = "#e9edf5"
	kept    = "#b6bfd0"
	wire    = "#8b97b1"
	apiInk  = "#3730a3"
	apiFill = "#e8e7fd"
)

// colours of the groups of nodes: for marks and for areas.
var colours = map[string][2]string{
	"control_plane": {"#4f46e5", "#f1f0fe"},
	"workers":       {"#0f9488", "#e8f7f4"},
	"gpu_workers":   {"#d97706", "#fdf3e1"},
}

var groupNames = []struct{ group, name string }{
	{"control_plane", "control plane"}, {"workers", "worker"}, {"gpu_workers", "GPU worker"},
}

// Sizes of the picture, in its own units.
const (
	margin     = 36.0
	gap        = 24.0
	tileWidth  = 248.0
	tileHeight = 66.0
	tileGap    = 10.0
	cardPad    = 16.0
	cardHead   = 92.0
	cell       = 12.0 // a node in a picture of many
	many       = 100  // nodes
)

// SVG draws a plan: the hosts with what they give and the nodes on them, the network below them and the Kubernetes API
// above. A plan of many nodes is drawn without their names.
func SVG(p *plan.Plan) string {
	d := drawing{plan: p, dense: len(p.Nodes()) > many}
	d.layout()

	return d.draw()
}

// drawing is a picture while it is made.
type drawing struct {
	canvas
	plan  *plan.Plan
	dense bool
	cards []card
	// tiles in a row of a card, and cards in a row of the picture.
	tiles, columns int
	cardWidth      float64
	width, height  float64
}

// card is a host with its nodes.
type card struct {
	host       plan.HostAllocation
	nodes      []tile
	x, y, w, h float64
	row        int
	endpoint   bool // the Kubernetes API leads here
}

// tile is a node.
type tile struct {
	plan.Node
	group string
	first bool // it is bootstrapped
}

const apiTop = 118.0

// layout decides where everything goes.
func (d *drawing) layout() {
	d.collect()

	n := len(d.cards)
	d.tiles = map[int]int{1: 3, 2: 2}[n]

	if d.tiles == 0 {
		d.tiles = 1
	}

	most := 0
	for _, c := range d.cards {
		most = max(most, len(c.nodes))
	}

	d.tiles = max(1, min(d.tiles, most))
	d.columns = n

	if n > 4 {
		d.columns = int(math.Ceil(math.Sqrt(float64(n) * 1.5)))
	}

	d.cardWidth = float64(d.tiles)*(tileWidth+tileGap) - tileGap + 2*cardPad
	if d.dense {
		d.cardWidth = 196
		d.tiles = int((d.cardWidth - 2*cardPad + 3) / (cell + 3))
	}

	content := float64(d.columns)*(d.cardWidth+gap) - gap
	d.width = max(content+2*margin, 860)
	left := (d.width - content) / 2
	y := apiTop + 92

	for first := 0; first < n; first += d.columns {
		row := d.cards[first:min(first+d.columns, n)]
		tallest := 0.0

		for i := range row {
			row[i].x, row[i].y, row[i].w, row[i].row = left+float64(i)*(d.cardWidth+gap), y, d.cardWidth, first/d.columns
			tallest = max(tallest, d.tall(len(row[i].nodes)))
		}

		for i := range row {
			row[i].h = tallest
		}

		y += tallest + 58
	}

	d.height = y + 66
}

// tall is how tall the card of so many nodes is.
func (d *drawing) tall(nodes int) float64 {
	rows := float64(max(1, (nodes+d.tiles-1)/d.tiles))
	if d.dense {
		return cardHead + rows*(cell+3) - 3 + cardPad
	}

	return cardHead + rows*(tileHeight+tileGap) - tileGap + cardPad
}

func (d *drawing) collect() {
	at := map[string]int{}

	for i, h := range d.plan.Hosts {
		d.cards = append(d.cards, card{host: h})
		at[h.Name] = i
	}

	first := true

	for _, pool := range d.plan.Pools {
		for _, n := range pool.Nodes {
			c := &d.cards[at[n.Host]]
			t := tile{Node: n, group: pool.Group(), first: first && pool.Role == spec.RoleControlPlane}
			c.nodes = append(c.nodes, t)

			if pool.Role == spec.RoleControlPlane && (t.first || d.plan.EndpointMode != spec.EndpointFirstControlPlane) {
				c.endpoint = true
			}

			first = false
		}
	}
}

func (d *drawing) draw() string {
	fmt.Fprintf(d, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=%q height=%q viewBox=\"0 0 %s %s\" font-family=%q "+
		"role=\"img\" %s>\n",
		num(d.width), num(d.height), num(d.width), num(d.height), font, attr("aria-label", "Plan of cluster "+d.plan.Cluster))
	d.rect(0, 0, d.width, d.height, 0, attr("fill", paper))
	d.header()
	d.network()

	for i := range d.cards {
		d.card(&d.cards[i])
	}

	d.api()
	d.legend()
	d.WriteString("</svg>\n")

	return d.String()
}

// header says which cluster this is and, on the right, how it comes up.
func (d *drawing) header() {
	p := d.plan
	d.text(margin, 50, 27, attr("font-weight", "700", "fill", ink), p.Cluster)

	about := strings.Join(p.Runs(), "  ·  ")
	d.text(margin, 76, 14, attr("fill", faint),
		fmt.Sprintf("%s  ·  %s on %s", about, count(len(p.Nodes()), "node"), count(len(p.Hosts), "host")))

	chips := []string{
		string(p.Environment), string(p.Source) + " · " + string(p.Platform),
		string(p.Addressing) + " addresses",
	}
	if p.Bootstrap == spec.BootstrapExternal {
		chips = append(chips, "external bootstrap")
	} else {
		chips = append(chips, strings.TrimSpace(string(p.CNI)+" "+p.CNIVersion))
	}

	x := d.width - margin

	for i := len(chips) - 1; i >= 0; i-- {
		w := width(chips[i], 12) + 24
		x -= w
		d.rect(x, 32, w, 26, 13, attr("fill", "#ffffff", "stroke", rule))
		d.text(x+w/2, 49.5, 12, attr("text-anchor", "middle", "fill", ink), chips[i])
		x -= 8
	}
}

// api is the Kubernetes API with a line to each host that it leads to.
func (d *drawing) api() {
	p := d.plan
	what := map[spec.EndpointMode]string{
		spec.EndpointFirstControlPlane: "on the first control plane",
		spec.EndpointVIP:               "a virtual address that the control planes share",
		spec.EndpointDNS:               "a name that leads to the control planes",
		spec.EndpointKubeVIP:           "a virtual address, held by kube-vip",
	}[p.EndpointMode]

	title := "Kubernetes API  ·  " + strings.TrimPrefix(p.Endpoint, "https://")
	if p.Endpoint == "" {
		title = "Kubernetes API"
		what += ", once its address is known"
	}

	if p.Bootstrap == spec.BootstrapExternal {
		what += ", set up by other tools"
	}

	w := max(width(title, 14), width(what, 12)) + 44
	x, middle := (d.width-w)/2, d.width/2

	for _, c := range d.cards {
		// In lower rows the line would run through other hosts.
		if c.endpoint && c.row == 0 {
			d.curve(middle, apiTop+46, c.x+c.w/2, c.y, attr("stroke", apiInk, "stroke-width", "1.6", "stroke-opacity", "0.55"))
			d.dot(c.x+c.w/2, c.y, 4, attr("fill", apiInk))
		}
	}

	d.rect(x, apiTop, w, 46, 14, attr("fill", apiFill, "stroke", apiInk, "stroke-opacity", "0.35"))
	d.text(middle, apiTop+20, 14, attr("text-anchor", "middle", "font-weight", "600", "fill", apiInk), title)
	d.text(middle, apiTop+37, 12, attr("text-anchor", "middle", "fill", apiInk, "fill-opacity", "0.75"), what)
}

// card draws a host: its name, what of it is used, its nodes.
func (d *drawing) card(c *card) {
	d.rect(c.x, c.y, c.w, c.h, 14, attr("fill", "#ffffff", "stroke", rule))
	d.text(c.x+cardPad, c.y+28, 15, attr("font-weight", "700", "fill", ink), fit(c.host.Name, 15, c.w-2*cardPad-70))
	d.text(c.x+c.w-cardPad, c.y+28, 12, attr("text-anchor", "end", "fill", faint), count(len(c.nodes), "node"))

	d.gauge(c, 42, "vCPU", vcpu, strconv.Itoa)
	d.gauge(c, 65, "memory", mib, memory)

	for i, n := range c.nodes {
		column, row := float64(i%d.tiles), float64(i/d.tiles)

		if d.dense {
			d.rect(c.x+cardPad+column*(cell+3), c.y+cardHead+row*(cell+3), cell, cell, 3, attr("fill", colours[n.group][0]))
		} else {
			d.tile(c.x+cardPad+column*(tileWidth+tileGap), c.y+cardHead+row*(tileHeight+tileGap), n)
		}
	}
}

// gauge is a bar of what the nodes of each group use, what is kept in reserve, and what is free. Without a limit the
// nodes fill it.
func (d *drawing) gauge(c *card, y float64, name string, of func(spec.Resources) int, write func(int) string) {
	const (
		label = 54.0
		thick = 11.0
	)

	value := 0.0
	if !d.dense {
		value = 10 + max(width(amount(c.host, vcpu, strconv.Itoa), 11), width(amount(c.host, mib, memory), 11))
		d.text(c.x+c.w-cardPad, c.y+y+9.5, 11, attr("text-anchor", "end", "fill", ink), amount(c.host, of, write))
	}

	x, room := c.x+cardPad+label, c.w-2*cardPad-label-value
	d.text(c.x+cardPad, c.y+y+9.5, 11, attr("fill", faint), name)
	d.rect(x, c.y+y, room, thick, thick/2, attr("fill", free))

	total := of(c.host.Capacity)
	if !c.host.Limited {
		total = of(c.host.Used)
	}

	if total == 0 {
		return
	}

	length := func(n int) float64 { return room * float64(min(n, total)) / float64(total) }

	if w := length(of(c.host.Reserve)); c.host.Limited && w > 0 {
		d.rect(x+room-w, c.y+y, w, thick, min(thick/2, w/2), attr("fill", kept))
	}

	// The groups lie over each other, the last one lowest, so that only the whole has round ends.
	sum := of(c.host.Used)

	for i := len(groupNames) - 1; i >= 0; i-- {
		g := groupNames[i].group

		if w := length(sum); w > 0 {
			d.rect(x, c.y+y, w, thick, min(thick/2, w/2), attr("fill", colours[g][0]))
		}

		for _, n := range c.nodes {
			if n.group == g {
				sum -= of(spec.Resources{VCPU: n.Cores, MemoryMiB: n.MemoryMiB})
			}
		}
	}
}

func vcpu(r spec.Resources) int { return r.VCPU }

func mib(r spec.Resources) int { return r.MemoryMiB }

// amount is what of a host is used.
func amount(h plan.HostAllocation, of func(spec.Resources) int, write func(int) string) string {
	if !h.Limited {
		return write(of(h.Used))
	}

	used, all := write(of(h.Used)), write(of(h.Capacity))
	if number, even := strings.CutSuffix(used, " GiB"); even && strings.HasSuffix(all, " GiB") {
		used = number
	}

	return used + " of " + all
}

// tile draws a node.
func (d *drawing) tile(x, y float64, n tile) {
	colour := colours[n.group]
	d.rect(x, y, tileWidth, tileHeight, 9, attr("fill", colour[1]))
	d.rect(x, y, 5, tileHeight, 2.5, attr("fill", colour[0]))

	room := tileWidth - 30.0
	d.text(x+16, y+22, 13, attr("font-weight", "600", "fill", ink), fit(n.Name, 13, room))

	if n.first && d.plan.Bootstrap == spec.BootstrapPulumi {
		const badge = "bootstrap"

		w := width(badge, 10) + 10
		d.rect(x+tileWidth-w-10, y+42, w, 16, 8, attr("fill", colour[0]))
		d.text(x+tileWidth-w/2-10, y+53.5, 10, attr("text-anchor", "middle", "fill", "#ffffff"), badge)
	}

	where := address(n.Node, map[spec.Addressing]string{
		spec.AddressingAgent:    "by guest agent",
		spec.AddressingReported: "not known",
	}[d.plan.Addressing])
	d.text(x+16, y+39, 11.5, attr("fill", ink), fit(fmt.Sprintf("VM %d  ·  %s", n.VMID, where), 11.5, room))

	size := strings.ReplaceAll(shape(n.Node), ", ", "  ·  ")
	if n.GPU != nil {
		size = fmt.Sprintf("%d vCPU · %s · GPU %s", n.Cores, memory(n.MemoryMiB), n.GPU.BDF)
	}

	d.text(x+16, y+55, 11, attr("fill", faint), fit(size, 11, room))
}

// network is the wire below each row of hosts.
func (d *drawing) network() {
	for i, c := range d.cards {
		y := c.y + c.h + 26
		d.line(c.x+c.w/2, c.y+c.h, c.x+c.w/2, y, attr("stroke", wire, "stroke-width", "2"))

		if i%d.columns == 0 {
			d.line(margin, y, d.width-margin, y, attr("stroke", wire, "stroke-width", "3", "stroke-linecap", "round"))
		}
	}

	p := d.plan
	text := p.Network.String()

	for _, pool := range p.Pools {
		if len(pool.Nodes) > 0 {
			nic := pool.Nodes[0].NICs[0]
			text += "  ·  bridge " + nic.Bridge

			if nic.VLAN != 0 {
				text += fmt.Sprintf("  ·  VLAN %d", nic.VLAN)
			}

			break
		}
	}

	if p.Gateway.IsValid() {
		text += "  ·  gateway " + p.Gateway.String()
	}

	d.text(d.width/2, d.height-66, 13, attr("text-anchor", "middle", "fill", ink), text)
}

// legend explains the colours, those that there are.
func (d *drawing) legend() {
	type entry struct{ colour, name string }

	var entries []entry

	for _, g := range groupNames {
		number := 0

		for _, pool := range d.plan.Pools {
			if pool.Group() == g.group {
				number += len(pool.Nodes)
			}
		}

		if number > 0 {
			entries = append(entries, entry{colours[g.group][0], count(number, g.name)})
		}
	}

	reserve, limited := false, false
	for _, h := range d.plan.Hosts {
		limited = limited || h.Limited
		reserve = reserve || h.Limited && h.Reserve != spec.Resources{}
	}

	if reserve {
		entries = append(entries, entry{kept, "kept in reserve"})
	}

	if limited {
		entries = append(entries, entry{free, "free"})
	}

	total := -22.0
	for _, e := range entries {
		total += 18 + width(e.name, 12) + 22
	}

	x, y := (d.width-total)/2, d.height-38

	for _, e := range entries {
		d.rect(x, y, 12, 12, 3, attr("fill", e.colour, "stroke", rule))
		d.text(x+18, y+10.5, 12, attr("fill", faint), e.name)

		x += 18 + width(e.name, 12) + 22
	}
}

// attr writes attributes.
func attr(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s=\"%s\" ", pairs[i], html.EscapeString(pairs[i+1]))
	}

	return strings.TrimSpace(b.String())
}
