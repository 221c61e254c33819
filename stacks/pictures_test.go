package stacks

import (
	"cmp"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/golden"
)

// TestPictureOfCluster: the picture in the README is the plan of an example, drawn as rehearse --plan=svg does.
func TestPictureOfCluster(t *testing.T) {
	drawn, err := os.ReadFile("testdata/plans/enterprise.svg")
	require.NoError(t, err)
	golden.Check(t, "docs/cluster.svg", string(drawn))
}

// TestPictureOfOwnership draws who owns what, from what the program registers for a cluster with one node of each kind.
func TestPictureOfOwnership(t *testing.T) {
	resources, _ := inYard(t, true, func(c *Config) {
		withGPUs("1")(c)
		c.Cluster.Name = "dev"
		c.Pools["worker"] = spec.Pool{Role: spec.RoleWorker, Count: new(1), Addresses: "10.0.0.21-29"}
	})

	golden.Check(t, "docs/ownership.svg", newTree(resources).svg())
}

// treeNode is a resource in the picture, below another.
type treeNode struct {
	name, kind, colour string
	depth              int
	children           []treeNode
}

// kinds of resources in the order in which a reader wants them.
var kinds = []struct{ token, kind, colour string }{
	{"pulumi:providers:proxmoxve", "provider", "#8b97b1"},
	{"pulumi:providers:talos", "provider", "#8b97b1"},
	{"talos-proxmox:index:TalosCluster", "TalosCluster", "#4f46e5"},
	{"talos:imageFactory/schematic:Schematic", "schematic of an image", "#d97706"},
	{"proxmoxve:Download/file:File", "image on a datastore", "#0f9488"},
	{"talos:machine/secrets:Secrets", "secrets of the cluster", "#d97706"},
	{"proxmoxve:Hardware/mapping/pci:Pci", "mapping of a GPU", "#0f9488"},
	{"pulumi:index:Stash", "what workers wait for", "#8b97b1"},
	{"talos-proxmox:index:TalosNode", "TalosNode", "#4f46e5"},
	{"talos-proxmox:index:GPUWorkerPool", "GPUWorkerPool", "#4f46e5"},
	{"proxmoxve:VM/virtualMachine:VirtualMachine", "VM", "#0f9488"},
	{"talos:machine/configurationApply:ConfigurationApply", "machine configuration, applied", "#d97706"},
	{"talos:cluster/kubeconfig:Kubeconfig", "kubeconfig", "#d97706"},
}

func rank(token string) int {
	for i, k := range kinds {
		if k.token == token {
			return i
		}
	}

	return -1
}

// newTree puts resources below their parents; the stack itself is the root.
func newTree(resources map[string]registered) treeNode {
	var below func(parent string, depth int) []treeNode

	below = func(parent string, depth int) []treeNode {
		var names []string

		for name, r := range resources {
			if r.parent == parent && name != "" {
				names = append(names, name)
			}
		}

		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(rank(resources[a].token)-rank(resources[b].token), strings.Compare(a, b))
		})

		var found []treeNode

		for _, name := range names {
			t := treeNode{name: name, kind: resources[name].token, colour: "#172033", depth: depth, children: below(name, depth+1)}
			if i := rank(t.kind); i >= 0 {
				t.kind, t.colour = kinds[i].kind, kinds[i].colour
			}

			found = append(found, t)
		}

		return found
	}

	return treeNode{name: "the stack", kind: "its program registers", colour: "#172033", children: below("", 1)}
}

const (
	row    = 34.0
	indent = 34.0
	left   = 36.0
	top    = 40.0
)

func (t treeNode) svg() string {
	var (
		b     strings.Builder
		lines int
	)

	var draw func(t treeNode) (y float64)

	draw = func(t treeNode) float64 {
		x, y := left+float64(t.depth)*indent, top+float64(lines)*row
		lines++

		fmt.Fprintf(&b, "<circle cx=\"%g\" cy=\"%g\" r=\"6\" fill=\"%s\"/>\n", x, y, t.colour)
		fmt.Fprintf(&b, "<text x=\"%g\" y=\"%g\" font-size=\"14\" font-weight=\"600\" fill=\"#172033\">%s<tspan "+
			"font-size=\"12.5\" font-weight=\"400\" fill=\"#66718a\" dx=\"10\">%s</tspan></text>\n",
			x+16, y+5, html.EscapeString(t.name), html.EscapeString(t.kind))

		for _, child := range t.children {
			to := draw(child)
			fmt.Fprintf(&b, "<path d=\"M%g %gV%gH%g\" fill=\"none\" stroke=\"#b6bfd0\" stroke-width=\"1.5\"/>\n", x, y+9, to,
				x+indent-9)
		}

		return y
	}

	draw(t)

	const width = 600.0

	height := top + float64(lines)*row + 56
	legend := ""

	for i, l := range [][2]string{
		{"#4f46e5", "component"},
		{"#0f9488", "on Proxmox VE"},
		{"#d97706", "Talos"},
		{"#8b97b1", "provider"},
	} {
		x := left + float64(i)*140
		legend += fmt.Sprintf("<circle cx=\"%g\" cy=\"%g\" r=\"6\" fill=\"%s\"/>\n<text x=\"%g\" y=\"%g\" "+
			"font-size=\"12.5\" fill=\"#66718a\">%s</text>\n",
			x, height-36, l[0], x+14, height-31.5, l[1])
	}

	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "+
		"font-family=\"Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif\" role=\"img\" "+
		"aria-label=\"Who owns what in a stack\">\n"+
		"<rect width=\"%g\" height=\"%g\" fill=\"#f4f6fb\"/>\n%s%s</svg>\n", width, height, width, height, width, height,
		b.String(), legend)
}
