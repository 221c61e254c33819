package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
)

// TestCompiledProgram runs the compiled main.go in a project directory, by the CLI and a Go language host, as an operator
// does: an inline program would prove neither main nor the settings in Pulumi.yaml.
func TestCompiledProgram(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	project := t.TempDir()
	binary := filepath.Join(project, "talos-proxmox")

	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir = root
	printed, err := build.CombinedOutput()
	require.NoError(t, err, string(printed))

	settings, err := os.ReadFile(filepath.Join(root, "Pulumi.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(settings), "\nruntime: go\n")

	compiled := strings.Replace(string(settings), "\nruntime: go\n",
		"\nruntime:\n  name: go\n  options:\n    binary: "+binary+"\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(project, "Pulumi.yaml"), []byte(compiled), 0o600))
	require.NoError(t, r.WriteStackFile(filepath.Join(project, "Pulumi.compiled.yaml")))

	stack, err := r.Backend.LocalStack(t.Context(), project, "compiled", nil)
	require.NoError(t, err)
	require.NoError(t, stack.SetAllConfig(t.Context(), r.Secrets()))

	// The keys that an operator wrote reach the compiled program, the unknown one included.
	set(t, stack, "cluster.nam", "x")
	assert.Contains(t, failUp(t, stack), `cluster.nam: is not a key of the configuration; did you mean "name"?`)
	require.NoError(t, stack.RemoveConfigWithOptions(t.Context(), "talos-proxmox:cluster.nam",
		&auto.ConfigOptions{Path: true}))

	require.NoError(t, stack.SetConfig(t.Context(), "talos-proxmox:clutser", auto.ConfigValue{Value: "x"}))
	assert.Contains(t, failUp(t, stack), `clutser: is not a key of the configuration; did you mean "cluster"?`)
	require.NoError(t, stack.RemoveConfig(t.Context(), "talos-proxmox:clutser"))

	outputs := up(t, stack).Outputs
	contract, err := stacks.DecodeContract(outputs[stacks.OutputContract].Value)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"k3s-dev-control-1": 401, "k3s-dev-worker-1": 501}, contract.NodeVMIDMap)
	requireNoChange(t, stack)
	destroy(t, stack)
}
