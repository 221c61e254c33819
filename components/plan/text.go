package plan

import (
	"fmt"
	"strings"
)

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

// Count is a number with its noun, "1 node" or "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, noun)
	}

	return fmt.Sprintf("%d %ss", n, noun)
}
