package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"os"
	"os/exec"
	"path/filepath"

	"talos-proxmox/components/spec"
	"talos-proxmox/tests/rehearsal"
)

// chart is what the module in the directory chart draws, which has the libraries for it.
type chart struct {
	Title, X, Y            string
	XTicks, YTicks         []float64
	XMin, XMax, YMin, YMax float64
	Lines                  []series
}

type series struct {
	Name   string
	Colour color.NRGBA
	Dashed bool
	Points []point
}

type point struct{ X, Y float64 }

// stages with colours that can be told from a light and from a dark page.
var stages = []struct {
	stage  Stage
	colour color.NRGBA
}{
	{Create, color.NRGBA{R: 0x3b, G: 0x82, B: 0xf6, A: 0xff}},
	{Destroy, color.NRGBA{R: 0xe5, G: 0x5b, B: 0x4d, A: 0xff}},
	{Refresh, color.NRGBA{R: 0xc9, G: 0x8a, B: 0x10, A: 0xff}},
	{Again, color.NRGBA{R: 0x1f, G: 0x9d, B: 0x6b, A: 0xff}},
	{Preview, color.NRGBA{R: 0xa8, G: 0x6f, B: 0xe8, A: 0xff}},
}

// chart draws how long each stage takes by the number of nodes, on as many hosts.
func (r *Report) chart(path string, hosts int) error {
	c := chart{
		Title: fmt.Sprintf("Seconds by number of nodes, hosts: %d", hosts), X: "nodes", Y: "seconds",
		XTicks: []float64{5, 10, 20, 50, 100, 200}, XMin: 4.5, XMax: 220,
		YTicks: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500}, YMin: 1, YMax: 500,
	}

	for _, s := range stages {
		c.add(r, hosts, series{Name: string(s.stage), Colour: s.colour},
			func(result Result) float64 { return result.step(s.stage).Wall.Seconds() })
	}

	c.add(r, hosts, series{Name: "create, critical path", Colour: stages[0].colour, Dashed: true},
		func(result Result) float64 { return result.step(Create).CriticalPath.Seconds() })

	root, err := rehearsal.Root()
	if err != nil {
		return err
	}

	in, err := json.Marshal(c)
	if err != nil {
		return err
	}

	var complaints bytes.Buffer

	draw := exec.Command("go", "run", ".")
	draw.Dir, draw.Env = filepath.Join(root, "tests", "bench", "chart"), append(os.Environ(), "GOWORK=off")
	draw.Stdin, draw.Stderr = bytes.NewReader(in), &complaints

	drawn, err := draw.Output()
	if err != nil {
		return fmt.Errorf("the chart: %w\n%s", err, complaints.String())
	}

	return os.WriteFile(path, drawn, 0o644) //nolint:gosec // for everybody to read
}

// add adds a line with its points, where there are any.
func (c *chart) add(r *Report, hosts int, s series, of func(Result) float64) {
	for _, result := range r.Results {
		if y := of(result); result.Kind == spec.DistributionTalos && result.Hosts == hosts && !result.Plain &&
			y > 0 {
			s.Points = append(s.Points, point{float64(result.Nodes), y})
			c.YMax = max(c.YMax, y*1.1)
		}
	}

	if len(s.Points) > 0 {
		c.Lines = append(c.Lines, s)
	}
}
