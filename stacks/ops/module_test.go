package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestModulePath gives a copy of the module another path: all of its packages and tests find each other by it, and
// nothing imports the former path.
func TestModulePath(t *testing.T) {
	t.Parallel()

	const to = "github.com/example/clusters"

	dir := t.TempDir()

	for _, name := range strings.Split(strings.TrimSuffix(git(t, "ls-files", "-z"), "\x00"), "\x00") {
		if text, err := os.ReadFile(filepath.Join(project, name)); err == nil {
			path := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, text, 0o600))
		}
	}

	_, err := renameModule(dir, "clusters")
	require.EqualError(t, err, `"clusters" is not a path of a module that others can require: write one like `+to)

	// Nothing is written where a file cannot be read.
	broken := filepath.Join(dir, "stacks", "broken.go")
	require.NoError(t, os.WriteFile(broken, []byte("package"), 0o600))
	_, err = renameModule(dir, to)
	require.ErrorContains(t, err, "broken.go")
	require.NoError(t, os.Remove(broken))

	changed, err := renameModule(dir, to)
	require.NoError(t, err)
	assert.Greater(t, changed, 300)

	list := exec.CommandContext(t.Context(), "go", "list", "-test", "-deps", "-f", "{{.ImportPath}}", "./...")
	list.Dir, list.Env = dir, append(os.Environ(), "GOWORK=off")

	printed, err := list.CombinedOutput()
	require.NoError(t, err, string(printed))
	assert.Contains(t, string(printed), to+"/stacks/contract\n")
	assert.NotRegexp(t, `(?m)^talos-proxmox(/|$)`, string(printed))

	text, err := os.ReadFile(filepath.Join(dir, "tests/engine/yaml/go.mod"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "\nmodule "+to+"/tests/engine/yaml\n")

	again, err := renameModule(dir, to)
	require.NoError(t, err)
	assert.Zero(t, again)
}
