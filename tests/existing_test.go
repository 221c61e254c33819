package tests

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
)

// states holds stacks as an earlier version of the program left them on the lab: the stack file, its secrets, the exported
// state and the passphrase that its secrets are encrypted with. They are not made again: what they hold is what users have.
const states = "testdata/states"

// TestExistingStacks holds that a stack that exists sees no change from the program: names, types, hooks and inputs of its
// resources are what they were. Proxmox VE is not asked, so all of the difference is the program's own.
func TestExistingStacks(t *testing.T) {
	t.Setenv("TALOS_PROXMOX_OFFLINE", "1")

	// Resources that came to be after the state was exported. Each is only new, and changes none of the others.
	added := map[string]int{}

	found, err := os.ReadDir(states)
	require.NoError(t, err)
	require.NotEmpty(t, found)

	for _, dir := range found {
		t.Run(dir.Name(), func(t *testing.T) {
			stack := existing(t, dir.Name())

			out := newOutput(t)
			result, err := stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.Diff())
			require.NoError(t, err)

			changes := previewed(result.ChangeSummary)
			assert.Positive(t, changes["same"])
			delete(changes, "same")

			if n := added[dir.Name()]; n > 0 {
				assert.Equal(t, map[string]int{"create": n}, changes, out.String())
			} else {
				assert.Empty(t, changes, out.String())
			}
		})
	}
}

// existing opens a stack of an earlier version.
func existing(t *testing.T, name string) auto.Stack {
	t.Helper()

	e, err := theEngine()
	require.NoError(t, err)

	from, dir := filepath.Join(states, name), t.TempDir()
	backend, work := filepath.Join(dir, "backend"), filepath.Join(dir, "work")

	require.NoError(t, os.MkdirAll(work, 0o700))
	require.NoError(t, os.MkdirAll(backend, 0o700))
	copyFile(t, filepath.Join(from, "passphrase"), filepath.Join(backend, "passphrase"))
	copyFile(t, filepath.Join(from, "Pulumi."+name+".yaml"), filepath.Join(work, "Pulumi."+name+".yaml"))

	b, err := e.NewBackend(backend)
	require.NoError(t, err)

	stack, err := b.InlineStack(t.Context(), stacks.Project, name, stacks.ProgramIn(work), nil, auto.WorkDir(work))
	require.NoError(t, err)

	var secrets map[string]string

	require.NoError(t, json.Unmarshal(read(t, filepath.Join(from, "secrets.json")), &secrets))

	for key, value := range secrets {
		require.NoError(t, stack.SetConfig(t.Context(), key, auto.ConfigValue{Value: value, Secret: true}))
	}

	packed, err := os.Open(filepath.Join(from, "state.json.gz"))
	require.NoError(t, err)

	defer packed.Close() //nolint:errcheck // read only

	text, err := gzip.NewReader(packed)
	require.NoError(t, err)

	var state apitype.UntypedDeployment

	require.NoError(t, json.NewDecoder(text).Decode(&state))
	require.NoError(t, stack.Import(t.Context(), state))

	return stack
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.WriteFile(to, read(t, from), 0o600))
}

func read(t *testing.T, path string) []byte {
	t.Helper()

	data, err := os.ReadFile(path)
	require.NoError(t, err)

	return data
}
