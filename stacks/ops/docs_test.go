package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// shown is a command of this package, in a fence or between backquotes, up to where a shell would end it.
var shown = regexp.MustCompile("go run \\./stacks/ops ([^`\n#&|;>]+)")

// TestDocumentedCommands: every command that a page shows exists, with its flags and as many arguments.
func TestDocumentedCommands(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(project, "stacks", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}

	seen := map[string]bool{}

	for _, page := range append(pages, filepath.Join(project, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range shown.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\\\n", " "), -1) {
			words := strings.Fields(m[1])

			name, err := understood(words)
			if err != nil {
				t.Errorf("%s: go run ./stacks/ops %s: %v", page, strings.TrimSpace(m[1]), err)
			}

			seen[name] = true
		}
	}

	for _, name := range []string{
		"snapshot", "list", "check", "restore", "run", "import", "generate", "plan", "talosctl",
		"ansible", "nodes.json", "set-addresses", "migrate", "impact", "role",
	} {
		if !seen[name] {
			t.Errorf("no page shows the command %s", name)
		}
	}
}

// understood parses a command line without running it, and returns the name of the command.
func understood(words []string) (string, error) {
	root := command(io.Discard)
	name := ""

	var disarm func(*cobra.Command)

	disarm = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			if disarm(c); c.RunE == nil {
				continue
			}

			c.RunE = func(c *cobra.Command, _ []string) error {
				name = c.Name()

				return nil
			}
		}
	}
	disarm(root)

	root.SetArgs(words)

	err := root.Execute()

	return name, err
}
