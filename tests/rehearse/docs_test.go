package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shown is a command of this package, in a fence or between backquotes, up to where a shell would end it.
var shown = regexp.MustCompile("go run \\./tests/rehearse ([^`\n#&|;>]+)")

// TestDocumentedCommands: every command that a page, the CI script or a workflow shows is understood, and so is each flag of the README's table.
func TestDocumentedCommands(t *testing.T) {
	pages, err := filepath.Glob("../../stacks/docs/*.md")
	require.NoError(t, err)

	workflows, err := filepath.Glob("../../.github/workflows/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, workflows)

	seen := 0

	for _, page := range append(append(pages, workflows...), "../../README.md", "../../.ci/run") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)

		for _, m := range shown.FindAllStringSubmatch(string(text), -1) {
			_, err := parse(strings.Fields(strings.ReplaceAll(m[1], "<stack>", "dev")))
			assert.NoError(t, err, "%s: %s", page, m[0])

			seen++
		}
	}

	assert.Greater(t, seen, 5)

	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)

	rows := regexp.MustCompile("(?m)^\\| (`--[^|]*(?:\\\\\\|[^|]*)*) \\|").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, rows, 9)

	for _, row := range rows {
		for _, flag := range regexp.MustCompile("`(--[^`]+)`").FindAllStringSubmatch(row[1], -1) {
			given, _, _ := strings.Cut(flag[1], `\|`) // the first of several values
			_, err := parse(append(strings.Fields(given), "dev"))
			assert.NoError(t, err, flag[1])
		}
	}
}
