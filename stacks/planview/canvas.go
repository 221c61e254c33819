package planview

import (
	"fmt"
	"html"
	"strings"
)

// canvas collects the elements of a picture.
type canvas struct{ strings.Builder }

const font = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"

// rect draws a rectangle with rounded corners.
func (c *canvas) rect(x, y, w, h, radius float64, style string) {
	fmt.Fprintf(c, "<rect x=%q y=%q width=%q height=%q rx=%q %s/>\n", num(x), num(y), num(w), num(h), num(radius), style)
}

// text writes one line; style holds further attributes.
func (c *canvas) text(x, y, size float64, style, s string) {
	fmt.Fprintf(c, "<text x=%q y=%q font-size=%q %s>%s</text>\n", num(x), num(y), num(size), style, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(c, "<path d=\"M%s %sL%s %s\" fill=\"none\" %s/>\n", num(x1), num(y1), num(x2), num(y2), style)
}

// curve runs down from one point to another.
func (c *canvas) curve(x1, y1, x2, y2 float64, style string) {
	middle := (y1 + y2) / 2
	fmt.Fprintf(c, "<path d=\"M%s %sC%s %s %s %s %s %s\" fill=\"none\" %s/>\n",
		num(x1), num(y1), num(x1), num(middle), num(x2), num(middle), num(x2), num(y2), style)
}

func (c *canvas) dot(x, y, radius float64, style string) {
	fmt.Fprintf(c, "<circle cx=%q cy=%q r=%q %s/>\n", num(x), num(y), num(radius), style)
}

// num writes a coordinate without a needless fraction.
func num(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// letter is about how wide one is, of its height.
const letter = 0.57

// width estimates how wide a text is; there is no font to ask.
func width(s string, size float64) float64 { return float64(len([]rune(s))) * size * letter }

// fit shortens a text to a width.
func fit(s string, size, room float64) string {
	runes := []rune(s)
	if width(s, size) <= room || len(runes) == 0 {
		return s
	}

	keep := max(1, int(room/(size*letter))-1)

	return string(runes[:min(keep, len(runes))]) + "…"
}
