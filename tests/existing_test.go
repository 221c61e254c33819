package tests

import (
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks"
	"talos-proxmox/stacks/config"
)

// states holds stacks as an earlier version of the program left them on the lab, a set for each kind of provider
// plugins: the stack file, its secrets, the exported state and the passphrase that its secrets are encrypted with.
// A set is recorded again when its plugins change, and never because the program has changed: it is what users have.
const states = "testdata/states"

var record = flag.Bool("record", false, "let TestExistingStacks record its stacks again, with the providers in use")

// TestExistingStacks holds that a stack that exists sees no change from the program: names, types, hooks and inputs of
// its resources are what they were. Proxmox VE is not asked, so all of the difference is the program's own.
func TestExistingStacks(t *testing.T) {
	// Resources that came to be after the state was exported. Each is only new, and changes none of the others.
	added := map[string]int{}

	e, err := theEngine()
	require.NoError(t, err)

	for _, name := range []string{"dev", "atlas", "enterprise", "k3s"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(states, string(e.Providers()), name)

			if *record {
				recordStack(t, name, dir)
			}

			t.Setenv("TALOS_PROXMOX_OFFLINE", "1")

			stack := existing(t, name, dir)

			out := newOutput(t)
			result, err := stack.Preview(t.Context(), optpreview.ProgressStreams(out), optpreview.Diff())
			require.NoError(t, err)

			changes := previewed(result.ChangeSummary)
			assert.Positive(t, changes["same"])
			delete(changes, "same")

			if n := added[name]; n > 0 {
				assert.Equal(t, map[string]int{"create": n}, changes, out.String())
			} else {
				assert.Empty(t, changes, out.String())
			}
		})
	}
}

// recordStack deploys a stack on the lab and keeps it.
func recordStack(t *testing.T, name, dir string) {
	t.Helper()

	r := rehearse(t, name)
	up(t, r.Stack)

	exported, err := r.Stack.Export(t.Context())
	require.NoError(t, err)

	// Where the program's source was is a path of this machine.
	deployment := decrypted(t, r.Stack)
	for i := range deployment.Resources {
		deployment.Resources[i].SourcePosition, deployment.Resources[i].StackTrace = "", nil
	}

	exported.Deployment, err = json.Marshal(deployment)
	require.NoError(t, err)

	secrets := map[string]string{}
	for key, value := range r.Secrets() {
		secrets[key] = value.Value
	}

	text, err := json.MarshalIndent(secrets, "", " ")
	require.NoError(t, err)

	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, r.WriteStackFile(filepath.Join(dir, "Pulumi."+name+".yaml")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secrets.json"), text, 0o600))

	passphrase := r.Backend.Env()["PULUMI_CONFIG_PASSPHRASE"]
	require.NoError(t, os.WriteFile(filepath.Join(dir, "passphrase"), []byte(passphrase), 0o600))

	file, err := os.Create(filepath.Join(dir, "state.json.gz"))
	require.NoError(t, err)

	packed := gzip.NewWriter(file)

	require.NoError(t, json.NewEncoder(packed).Encode(exported))
	require.NoError(t, packed.Close())
	require.NoError(t, file.Close())
}

// existing opens a stack of an earlier version.
func existing(t *testing.T, name, from string) auto.Stack {
	t.Helper()

	e, err := theEngine()
	require.NoError(t, err)

	dir := t.TempDir()
	backend, work := filepath.Join(dir, "backend"), filepath.Join(dir, "work")

	require.NoError(t, os.MkdirAll(work, 0o700))
	require.NoError(t, os.MkdirAll(backend, 0o700))
	copyFile(t, filepath.Join(from, "passphrase"), filepath.Join(backend, "passphrase"))
	copyFile(t, filepath.Join(from, "Pulumi."+name+".yaml"), filepath.Join(work, "Pulumi."+name+".yaml"))

	b, err := e.NewBackend(backend)
	require.NoError(t, err)

	stack, err := b.InlineStack(t.Context(), config.Project, name, stacks.ProgramIn(work), nil, auto.WorkDir(work))
	require.NoError(t, err)

	var secrets map[string]string

	require.NoError(t, json.Unmarshal(read(t, filepath.Join(from, "secrets.json")), &secrets))

	for key, value := range secrets {
		require.NoError(t, stack.SetConfig(t.Context(), key, auto.ConfigValue{Value: value, Secret: true}))
	}

	packed, err := os.Open(filepath.Join(from, "state.json.gz"))
	require.NoError(t, err)

	defer packed.Close() // read only

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
