package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// privateWords are words that the field does not use, as parts of identifiers, with what it says instead.
var privateWords = map[string]string{
	"gate|gates":                      "hook",
	"carried|uncarried":               "upgrade",
	"vacate|vacated":                  "drain",
	"reopen|reopened":                 "uncordon",
	"permitted|lack|lacks":            "permissions, missing",
	"elsewhere":                       "placement drift",
	"unfinished":                      "incomplete",
	"unwritten|owed":                  "not applied, pending",
	"amiss|unwell":                    "unhealthy",
	"leaver|departure|unvote|silence": "removal, unreachable",
	"mute|unanswered|silent":          "unreachable",
	"patience|patient|lasting":        "grace period, with retries",
	"foresee|foreseen":                "preview",
	"roster":                          "address book",
	"anew|remade":                     "recreate, replace",
	"beside":                          "companions",
	"fresh|adopted":                   "unconfigured, existing",
	"otherwise|stated":                "fallback, given",
	"deed|happening|blow|stranger|spoil|twig": "event, fault, foreign",
	"shelf|yard|roomy|nobody|somebody|deaf":   "what it holds",
	"say|says|said|tell|tells|told":           "report, ask, check",
}

// TestIdentifiers: whoever knows Kubernetes, Pulumi, Proxmox VE and Talos meets their words in identifiers.
func TestIdentifiers(t *testing.T) {
	t.Parallel()

	words := map[string]string{}

	for list, instead := range privateWords {
		for word := range strings.SplitSeq(list, "|") {
			words[word] = instead
		}
	}

	camel := regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
	seen := 0

	for _, dir := range []string{"components", "stacks", "policy"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}

			files := token.NewFileSet()

			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}

			for name := range declarations(file) {
				seen++

				for _, word := range camel.FindAllString(name.Name, -1) {
					if instead := words[strings.ToLower(word)]; instead != "" {
						t.Errorf("%s: %s: use the field's word, for example: %s", files.Position(name.Pos()), name.Name, instead)
					}
				}
			}

			return nil
		})
		require.NoError(t, err)
	}

	assert.Greater(t, seen, 5000)
}

// declarations are the names that a file declares.
func declarations(file *ast.File) func(func(*ast.Ident) bool) {
	return func(yield func(*ast.Ident) bool) {
		ast.Inspect(file, func(n ast.Node) bool {
			var names []*ast.Ident

			switch n := n.(type) {
			case *ast.FuncDecl:
				names = []*ast.Ident{n.Name}
			case *ast.TypeSpec:
				names = []*ast.Ident{n.Name}
			case *ast.ValueSpec:
				names = n.Names
			case *ast.Field:
				names = n.Names
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
						names = append(names, name)
					}
				}
			}

			for _, name := range names {
				if !yield(name) {
					return false
				}
			}

			return true
		})
	}
}
