package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/rehearsal"
)

// TestConsumerModule builds a module outside this one, as consumers.md says, and has its program make two clusters and
// a machine, read one of the clusters, and destroy all in two steps.
func TestConsumerModule(t *testing.T) {
	t.Parallel()

	one, two := rehearse(t, "dev"), rehearse(t, devWith(t, "name: k3s-dev", "name: k3s-test"))
	run := consumerModule(t, one, two)

	printed, err := run("up")
	require.NoError(t, err, printed)
	require.NoError(t, one.WaitReady(t.Context(), wait))
	require.NoError(t, two.WaitReady(t.Context(), wait))
	assert.Equal(t, "edge-1", vmConfig(t, one, "edge-1")["name"])

	printed, err = run("read")
	require.NoError(t, err, printed)
	assert.Contains(t, printed, "the cluster is k3s-test ["+addressOf(two, "k3s-test-control-1")+"]")

	printed, err = run("destroy")
	require.Error(t, err)
	assert.Contains(t, printed, "set lifecycle.teardown to true and run 'pulumi up'")

	printed, err = run("teardown")
	require.NoError(t, err, printed)
	assert.Empty(t, one.Leftovers())
	assert.Empty(t, two.Leftovers())
}

// consumerModule makes and builds the module, and returns what runs its program on the clusters of some rehearsals, all
// in the backend of the first.
func consumerModule(t *testing.T, rehearsals ...*rehearsal.Rehearsal) func(word string) (string, error) {
	t.Helper()

	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/consumer")))

	here, err := filepath.Abs(root)
	require.NoError(t, err)

	path := strings.TrimSuffix(module, "/")

	for _, words := range []string{
		"mod init example.org/consumer",
		"mod edit -require " + path + "@v0.0.0 -replace " + path + "=" + here +
			" -exclude github.com/cosi-project/runtime@v1.16.3" +
			" -exclude github.com/jsimonetti/rtnetlink/v2@v2.2.1-0.20260802200809-43bafec815b3",
		"mod tidy",
		"build -o consumer .",
	} {
		command := exec.CommandContext(t.Context(), "go", strings.Fields(words)...)
		command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off")
		printed, err := command.CombinedOutput()
		require.NoError(t, err, "go %s: %s", words, printed)
	}

	first := rehearsals[0]
	env := append(first.Backend.Environ(),
		pathWith(filepath.Dir(first.Engine().CLI())))

	var files []string

	for _, r := range rehearsals {
		file := filepath.Join(dir, r.Plan.Cluster+".yaml")
		require.NoError(t, r.WriteStackFile(file))

		files = append(files, file)
		env = append(env, "SECRET_OF_"+r.Plan.Cluster+"="+r.Secrets()[config.Project+":proxmoxTokenSecret"].Value)
	}

	return func(word string) (string, error) {
		command := exec.CommandContext(t.Context(), filepath.Join(dir, "consumer"), append([]string{word}, files...)...)
		command.Dir, command.Env = dir, env
		printed, err := command.CombinedOutput()

		return string(printed), err
	}
}
