package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFilesFormNoCycles: in the packages that a change of a node passes, no two files need each other, so that each can
// be read with what it uses and nothing else.
func TestFilesFormNoCycles(t *testing.T) {
	t.Parallel()

	below := []string{
		"components", "components/etcd", "components/etcdbackup", "components/hookutil", "components/impact",
		"components/k3sconfig", "components/kubeapi", "components/kubecomponents", "components/machineconfig",
		"components/machineconfig/encode", "components/machineconfig/manifests", "components/machineconfig/patches",
		"components/machineconfig/running", "components/plan",
		"components/planner", "components/planner/cluster", "components/planner/placement", "components/preflight",
		"components/preflight/checks", "components/preflight/hosts", "components/preflight/permissions",
		"components/preflight/vms", "components/proxmoxapi", "components/proxmoxvm",
		"components/proxmoxvm/harules", "components/proxmoxvm/vmidentity", "components/proxmoxvm/vmimage",
		"components/proxmoxvm/vmupdate", "components/rollout", "components/rollout/k3s", "components/rollout/talos",
		"components/rollout/talos/bootstrap", "components/rollout/talos/changes", "components/rollout/talos/cluster",
		"components/rollout/talos/health", "components/rollout/talos/removal", "components/rollout/vmrestart",
		"components/spec", "components/talosapi", "components/talosimage", "components/upgradepath",
		"components/wait", "policy/rules", "stacks", "stacks/config", "stacks/contract", "stacks/generate",
		"stacks/ops", "stacks/ops/generate", "stacks/ops/impactcmd", "stacks/ops/importcmd", "stacks/ops/state", "stacks/planview",
		"stacks/provider", "stacks/schema",
	}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}

	for _, dir := range below {
		args = append(args, "./"+dir)
	}

	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = root
	listed, err := list.Output()
	require.NoError(t, err)

	type listedPackage struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}

	packages := map[string]listedPackage{}

	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p listedPackage

		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}

		require.NoError(t, err)

		packages[p.ImportPath] = p
	}

	files := token.NewFileSet()
	compiled := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(packages[path].Export)
	})

	for _, dir := range below {
		p := packages[module+dir]
		require.NotEmpty(t, p.GoFiles, dir)

		var parsed []*ast.File

		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)

			parsed = append(parsed, file)
		}

		info := types.Info{Uses: map[*ast.Ident]types.Object{}}
		checker := types.Config{Importer: compiled}
		checked, err := checker.Check(p.ImportPath, files, parsed, &info)
		require.NoError(t, err)

		needs := map[string]map[string]bool{}

		for use, object := range info.Uses {
			if object.Pkg() == checked && declared(object, checked) {
				from, to := fileOf(files, use.Pos()), fileOf(files, object.Pos())
				if needs[from] == nil {
					needs[from] = map[string]bool{}
				}

				needs[from][to] = true
			}
		}

		told := map[string]bool{}

		for _, file := range slices.Sorted(maps.Keys(needs)) {
			knot := []string{}

			for other := range reached(needs, file) {
				if reached(needs, other)[file] && other != file && !told[other] {
					knot, told[other] = append(knot, other), true
				}
			}

			slices.Sort(knot)
			assert.Empty(t, knot, "%s: these files and %s need each other: move what several use into a file of its own",
				dir, file)

			told[file] = true
		}
	}
}

// declared says whether an object is one that a file declares for its package: a function, a method, a type, a variable
// or a constant.
func declared(object types.Object, in *types.Package) bool {
	_, function := object.(*types.Func)

	return function || object.Parent() == in.Scope()
}

func fileOf(files *token.FileSet, at token.Pos) string {
	return filepath.Base(files.Position(at).Filename)
}

// reached are the files that a file needs, directly or not.
func reached(needs map[string]map[string]bool, file string) map[string]bool {
	found := map[string]bool{}

	var visit func(string)

	visit = func(from string) {
		for to := range needs[from] {
			if !found[to] {
				found[to] = true

				visit(to)
			}
		}
	}
	visit(file)

	return found
}
