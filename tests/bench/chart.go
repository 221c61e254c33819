package main

import (
	"fmt"
	"image/color"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"talos-proxmox/components/spec"
)

// Colours that can be told from a light and from a dark page.
var (
	ink    = color.NRGBA{R: 0x84, G: 0x8d, B: 0x97, A: 0xff}
	grid   = color.NRGBA{R: 0x84, G: 0x8d, B: 0x97, A: 0x50}
	stages = []struct {
		stage  Stage
		colour color.NRGBA
	}{
		{Create, color.NRGBA{R: 0x3b, G: 0x82, B: 0xf6, A: 0xff}},
		{Destroy, color.NRGBA{R: 0xe5, G: 0x5b, B: 0x4d, A: 0xff}},
		{Refresh, color.NRGBA{R: 0xc9, G: 0x8a, B: 0x10, A: 0xff}},
		{Again, color.NRGBA{R: 0x1f, G: 0x9d, B: 0x6b, A: 0xff}},
		{Preview, color.NRGBA{R: 0xa8, G: 0x6f, B: 0xe8, A: 0xff}},
	}
)

// chart draws how long each stage takes by the number of nodes, on as many hosts, with both axes logarithmic: what is
// linear in the number of nodes rises no steeper than the diagonal.
func (r *Report) chart(path string, hosts int) error {
	plot.DefaultFont.Variant = "Sans"

	p := plot.New()
	p.BackgroundColor = nil // the page's
	p.Title.Text = fmt.Sprintf("Seconds by number of nodes, hosts: %d", hosts)
	p.X.Label.Text, p.Y.Label.Text = "nodes", "seconds"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker = ticks(5, 10, 20, 50, 100, 200)
	p.Y.Tick.Marker = ticks(1, 2, 5, 10, 20, 50, 100, 200, 500)
	p.Legend.Left, p.Legend.Top = true, true
	p.Legend.Padding = vg.Points(2)

	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Label.TextStyle.Color, axis.Tick.LineStyle.Color, axis.Tick.Label.Color = ink, ink, ink,
			ink
	}

	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = ink, ink

	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	p.Add(lines)

	for _, s := range stages {
		if err := r.line(p, hosts, string(s.stage), s.colour, nil,
			func(result Result) float64 { return result.step(s.stage).Wall.Seconds() }); err != nil {
			return err
		}
	}

	dashes := []vg.Length{vg.Points(4), vg.Points(3)}
	if err := r.line(p, hosts, "create, critical path", stages[0].colour, dashes, func(result Result) float64 {
		return result.step(Create).CriticalPath.Seconds()
	}); err != nil {
		return err
	}

	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 4.5, 220, 1, max(p.Y.Max*1.1, 500)

	canvas := vgsvg.New(560, 380)
	p.Draw(draw.New(canvas))

	file, err := os.Create(path)
	if err != nil {
		return err
	}

	if _, err := canvas.WriteTo(file); err != nil {
		file.Close() // the first error says it

		return err
	}

	return file.Close()
}

// line adds a line with its points, where there are any.
func (r *Report) line(p *plot.Plot, hosts int, name string, colour color.Color, dashes []vg.Length,
	of func(Result) float64,
) error {
	var points plotter.XYs

	for _, result := range r.Results {
		if result.Kind == spec.DistributionTalos && result.Hosts == hosts && of(result) > 0 {
			points = append(points, plotter.XY{X: float64(result.Nodes), Y: of(result)})
		}
	}

	if len(points) == 0 {
		return nil
	}

	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}

	line.Color, line.Width, line.Dashes = colour, vg.Points(1.6), dashes
	dots.Color, dots.Shape, dots.Radius = colour, draw.CircleGlyph{}, vg.Points(2.4)

	p.Add(line)
	p.Legend.Add(name, line)

	if dashes == nil {
		p.Add(dots)
	}

	return nil
}

func ticks(at ...float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, v := range at {
		all = append(all, plot.Tick{Value: v, Label: strconv.Itoa(int(v))})
	}

	return all
}
