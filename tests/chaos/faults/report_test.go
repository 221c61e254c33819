package faults

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTableAddsUp: whatever a case ended with, it is in a column, so that each row adds up to its cases.
func TestTableAddsUp(t *testing.T) {
	t.Parallel()

	var results []Result

	for _, v := range declaredVerdicts(t) {
		c := Case{Stack: Stacks()[0], Stage: Create, Effect: Refused}
		results = append(results, Result{Case: c, Verdict: v}, Result{Case: c, Verdict: v})
	}

	var out bytes.Buffer
	require.NoError(t, Table(&out, results))

	rows := 0

	for line := range strings.Lines(out.String()) {
		heading, cells, isRow := strings.Cut(line, string(Refused))
		if !isRow || heading != "" {
			if heading, cells, isRow = strings.Cut(line, "all "); !isRow || heading != "" {
				continue
			}
		}

		rows++
		sum := 0
		numbers := strings.Fields(cells)

		for _, cell := range numbers[1:] {
			n, err := strconv.Atoi(cell)
			require.NoError(t, err)

			sum += n
		}

		assert.Equal(t, strconv.Itoa(len(results)), numbers[0], line)
		assert.Equal(t, len(results), sum, line)
	}

	assert.Equal(t, 3, rows, out.String())
}

// declaredVerdicts are those that the source declares.
func declaredVerdicts(t *testing.T) []Verdict {
	t.Helper()

	file, err := parser.ParseFile(token.NewFileSet(), "case.go", nil, 0)
	require.NoError(t, err)

	var all []Verdict

	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || len(spec.Values) != 1 {
			return true
		}

		if kind, named := spec.Type.(*ast.Ident); named && kind.Name == "Verdict" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)

			all = append(all, Verdict(text))
		}

		return true
	})
	require.Greater(t, len(all), 7)

	return all
}
