package main

import (
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// moduleOf gives the module another path.
func moduleOf(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "module <path>", Args: cobra.ExactArgs(1),
		Short: "Give the module of a fork its own path, in go.mod and in all imports",
		Long: "Give the module of a fork its own path, in go.mod and in all imports, so that other modules can require " +
			"it.\n\n" +
			"The names of resources, outputs and configuration keys stay: stacks that exist see no change.",
		RunE: func(c *cobra.Command, args []string) error {
			changed, err := renameModule(o.project, args[0])
			if err == nil {
				fmt.Fprintf(c.OutOrStdout(), "%d files changed: the module is %s\n", changed, args[0])
			}

			return err
		},
	}
}

var (
	modulePath = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._~-]+)+$`)
	moduleLine = regexp.MustCompile(`(?m)^module (\S+)`)
)

// renameModule gives the module in a directory, and those below it, another path, and counts the files that it changed.
func renameModule(dir, to string) (int, error) {
	if !modulePath.MatchString(to) {
		return 0, fmt.Errorf("%q is not a path of a module that others can require: write one like "+
			"github.com/example/clusters", to)
	}

	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return 0, err
	}

	found := moduleLine.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("go.mod has no line that names the module")
	}

	from, files := string(found[1]), map[string][]byte{}

	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() {
			if name := entry.Name(); path != dir && (name == ".git" || name == "node_modules") {
				return filepath.SkipDir
			}

			return nil
		}

		before, after, err := renamed(path, from, to)
		if err != nil || string(before) == string(after) {
			return err
		}

		files[path] = after

		return nil
	})
	if err != nil {
		return 0, err
	}

	// go.mod is last: until it names the new path, the same command does the rest.
	module := filepath.Join(dir, "go.mod")

	for path, text := range files {
		if path == module {
			continue
		}

		if err := os.WriteFile(path, text, 0o644); err != nil {
			return 0, err
		}
	}

	if text, changed := files[module]; changed {
		err = os.WriteFile(module, text, 0o644)
	}

	return len(files), err
}

// renamed is a file before and after its module has another path.
func renamed(path, from, to string) (before, after []byte, err error) {
	name := filepath.Base(path)
	if name != "go.mod" && name != ".golangci.yml" && filepath.Ext(name) != ".go" {
		return nil, nil, nil
	}

	if before, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}

	switch name {
	case "go.mod":
		after = regexp.MustCompile(`(?m)^module `+regexp.QuoteMeta(from)+`(/|$)`).ReplaceAll(before, []byte("module "+to+"$1"))
	case ".golangci.yml": // its formatters group imports by the module
		after = []byte(strings.NewReplacer("module-path: "+from, "module-path: "+to, "prefix("+from+")", "prefix("+to+")").
			Replace(string(before)))
	default:
		after, err = renamedImports(path, before, from, to)
	}

	return before, after, err
}

// renamedImports is the text of a Go file with its imports of the module renamed.
func renamedImports(path string, text []byte, from, to string) ([]byte, error) {
	files := token.NewFileSet()

	file, err := parser.ParseFile(files, path, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}

	after := string(text)

	for i := len(file.Imports) - 1; i >= 0; i-- { // what stands before it keeps its place
		at := file.Imports[i].Path

		imported, err := strconv.Unquote(at.Value)
		if err != nil {
			return nil, err
		}

		if rest, ours := strings.CutPrefix(imported, from); ours && (rest == "" || rest[0] == '/') {
			start := files.Position(at.Pos()).Offset
			after = after[:start] + strconv.Quote(to+rest) + after[start+len(at.Value):]
		}
	}

	if after == string(text) {
		return text, nil
	}

	return format.Source([]byte(after))
}
