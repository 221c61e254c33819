package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
	"talos-proxmox/stacks/contract"
	"talos-proxmox/tests/rehearsal"
)

// TestCompiledProgram runs the compiled main.go in a project directory, by the CLI and a Go language host, as an
// operator does: an inline program would prove neither main nor the settings in Pulumi.yaml.
func TestCompiledProgram(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	stack := compiled(t, r, "compiled")

	// The keys that an operator wrote reach the compiled program, the unknown one included.
	set(t, stack, "cluster.nam", "x")
	assert.Contains(t, failUp(t, stack), `cluster.nam: is not a key of the configuration; did you mean "name"?`)
	unset(t, stack, "cluster.nam")

	require.NoError(t, stack.SetConfig(t.Context(), "talos-proxmox:clutser", auto.ConfigValue{Value: "x"}))
	assert.Contains(t, failUp(t, stack), `clutser: is not a key of the configuration; did you mean "cluster"?`)
	require.NoError(t, stack.RemoveConfig(t.Context(), "talos-proxmox:clutser"))

	set(t, stack, "pools.control.protection", "true")

	outputs := upResult(t, stack).Outputs
	contract, err := contract.Decode(outputs[contract.OutputContract].Value)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"k3s-dev-control-1": 401, "k3s-dev-worker-1": 501, "k3s-dev-gpu-1": 601},
		contract.NodeVMIDMap)
	requireNoChange(t, stack)

	set(t, stack, "lifecycle.teardown", "true")

	before, out := r.Lab.World().Snapshot(), newOutput(t)
	takeDown := func() error { // as 'ops run destroy' does it
		stack.Workspace().SetEnvVar(stacks.DestroyVariable, "1")
		defer stack.Workspace().UnsetEnvVar(stacks.DestroyVariable)

		_, err := stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out),
			optdestroy.ErrorProgressStreams(out))

		return err
	}

	// What Proxmox VE protects would be switched off and stay.
	require.Error(t, takeDown())
	assert.Contains(t, out.String(), "lifecycle.teardown: does not delete VMs that are protected on Proxmox VE: nothing is "+
		"destroyed (given: k3s-dev-control-1, VMID 401 on host pve)")
	assert.Equal(t, before, r.Lab.World().Snapshot())

	up(t, stack)
	require.NoError(t, takeDown())
	assert.Empty(t, vmids(r))
}

// compiled is the rehearsed stack as a stack of its own in a project directory, whose program is the compiled one.
func compiled(t *testing.T, r *rehearsal.Rehearsal, name string, opts ...auto.LocalWorkspaceOption) auto.Stack {
	t.Helper()

	project := projectOf(t, ".")
	require.NoError(t, r.WriteStackFile(filepath.Join(project, "Pulumi."+name+".yaml")))

	stack, err := r.Backend.LocalStack(t.Context(), project, name, nil, opts...)
	require.NoError(t, err)
	require.NoError(t, stack.SetAllConfig(t.Context(), r.Secrets()))

	return stack
}

// projectOf is a project directory for a program of this module, compiled, with the settings next to it.
func projectOf(t *testing.T, program string, flags ...string) string {
	t.Helper()

	project, binary := t.TempDir(), compile(t, "./"+program, flags...)

	settings, err := os.ReadFile(filepath.Join(root, program, "Pulumi.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(settings), "\nruntime: go\n")

	with := strings.Replace(string(settings), "\nruntime: go\n",
		"\nruntime:\n  name: go\n  options:\n    binary: "+binary+"\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(project, "Pulumi.yaml"), []byte(with), 0o600))

	return project
}

// compile builds a command of this module, with flags of go build, and returns the path of the binary.
func compile(t *testing.T, command string, flags ...string) string {
	t.Helper()

	binary := filepath.Join(t.TempDir(), "command")
	args := append(append([]string{"build", "-o", binary}, flags...), command)
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = root
	printed, err := build.CombinedOutput()
	require.NoError(t, err, string(printed))

	return binary
}
