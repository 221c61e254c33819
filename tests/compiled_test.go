package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
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

	// A protected VM goes once its protection has been taken back, and not before.
	set(t, stack, "pools.worker.protection", "true")
	up(t, stack)
	set(t, stack, "lifecycle.replace[0]", "k3s-dev-worker-1")
	assert.Contains(t, failUp(t, stack), "lifecycle.replace: names a node whose VM is protected (given: k3s-dev-worker-1); "+
		"set protection to false for its pool, and run 'pulumi up' before")
	unset(t, stack, "lifecycle.replace")
	set(t, stack, "pools.worker.count", "0")
	assert.Contains(t, failUp(t, stack), "(given: k3s-dev-worker-1, VMID 501 on host pve); put the node back with "+
		"protection: false for its pool, run 'pulumi up --refresh', ")
	assert.Contains(t, vmids(r), "k3s-dev-worker-1")
	set(t, stack, "pools.worker.count", "1")

	set(t, stack, "pools.worker.protection", "false")
	up(t, stack)
	set(t, stack, "pools.worker.count", "0")
	up(t, stack)
	assert.NotContains(t, vmids(r), "k3s-dev-worker-1")

	set(t, stack, "lifecycle.teardown", "true")

	before, out := r.Lab.World().Snapshot(), newOutput(t)
	takeDown := func() error { // as 'ops run destroy' does it
		stack.Workspace().SetEnvVar(config.DestroyVariable, "1")
		defer stack.Workspace().UnsetEnvVar(config.DestroyVariable)

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

	binary, err := theBinaries.build("command", command, flags...)
	require.NoError(t, err)

	return binary
}

// binaries are what tests have built: linking takes longer than most of them.
type binaries struct {
	mu    sync.Mutex
	dir   string
	built map[string]func() (string, error)
}

var theBinaries = binaries{built: map[string]func() (string, error){}}

// build builds a package of this module once. Tests share the binary, whose file has the given name.
func (b *binaries) build(name, pkg string, flags ...string) (string, error) {
	args := append(append([]string{"build", "-ldflags=-s -w"}, flags...), pkg)
	key := strings.Join(args, " ")

	b.mu.Lock()

	if b.built[key] == nil {
		b.built[key] = sync.OnceValues(func() (string, error) {
			dir, err := b.directory()
			if err != nil {
				return "", err
			}

			binary := filepath.Join(dir, name)
			command := exec.Command("go", slices.Insert(args, 1, "-o", binary)...)
			command.Dir = root

			if printed, err := command.CombinedOutput(); err != nil {
				return "", fmt.Errorf("%w\n%s", err, printed)
			}

			return binary, nil
		})
	}

	build := b.built[key]
	b.mu.Unlock()

	return build()
}

// directory is a new one for one of them.
func (b *binaries) directory() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.dir == "" {
		var err error
		if b.dir, err = os.MkdirTemp("", "binaries-"); err != nil {
			return "", err
		}
	}

	return os.MkdirTemp(b.dir, "")
}

// remove removes them, when all tests are done.
func (b *binaries) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}
