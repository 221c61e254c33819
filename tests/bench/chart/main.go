// Command chart draws lines with both axes logarithmic: what is linear rises no steeper than the diagonal. It reads a
// Chart as JSON and writes an SVG.
//
// It is a module of its own, because the libraries that draw are no business of whoever requires the program.
package main

import (
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"os"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is what to draw.
type Chart struct {
	Title, X, Y            string
	XTicks, YTicks         []float64
	XMin, XMax, YMin, YMax float64
	Lines                  []Line
}

// Line is one line. Dashed ones have no dots.
type Line struct {
	Name   string
	Colour color.NRGBA
	Dashed bool
	Points plotter.XYs
}

// Colours that can be told from a light and from a dark page.
var (
	ink  = color.NRGBA{R: 0x84, G: 0x8d, B: 0x97, A: 0xff}
	grid = color.NRGBA{R: 0x84, G: 0x8d, B: 0x97, A: 0x50}
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var chart Chart
	if err := json.NewDecoder(in).Decode(&chart); err != nil {
		return err
	}

	plot.DefaultFont.Variant = "Sans"

	p := plot.New()
	p.BackgroundColor = nil // the page's
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = chart.Title, chart.X, chart.Y
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(chart.XTicks), ticks(chart.YTicks)
	p.Legend.Left, p.Legend.Top = true, true
	p.Legend.Padding = vg.Points(2)

	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Label.TextStyle.Color = ink, ink
		axis.Tick.LineStyle.Color, axis.Tick.Label.Color = ink, ink
	}

	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = ink, ink

	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	p.Add(lines)

	for _, l := range chart.Lines {
		if err := l.add(p); err != nil {
			return err
		}
	}

	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = chart.XMin, chart.XMax, chart.YMin, chart.YMax

	canvas := vgsvg.New(560, 380)
	p.Draw(draw.New(canvas))

	_, err := canvas.WriteTo(out)

	return err
}

func (l Line) add(p *plot.Plot) error {
	line, dots, err := plotter.NewLinePoints(l.Points)
	if err != nil {
		return err
	}

	line.Color, line.Width = l.Colour, vg.Points(1.6)
	dots.Color, dots.Shape, dots.Radius = l.Colour, draw.CircleGlyph{}, vg.Points(2.4)

	if l.Dashed {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
	}

	p.Add(line)
	p.Legend.Add(l.Name, line)

	if !l.Dashed {
		p.Add(dots)
	}

	return nil
}

func ticks(at []float64) plot.ConstantTicks {
	var all plot.ConstantTicks
	for _, v := range at {
		all = append(all, plot.Tick{Value: v, Label: strconv.Itoa(int(v))})
	}

	return all
}
