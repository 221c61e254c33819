package tests

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRejectedConfiguration has a patch that Talos does not accept. The preview says so in the node's own words, 'ops
// impact' shows it and fails, and an update fails without asking again.
func TestRejectedConfiguration(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne))
	stack := compiled(t, r, "rejected")
	up(t, stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	since := time.Now()

	set(t, stack, "cluster.patches[0]", `machine: { kubelet: { image: "ghcr.io/siderolabs/kubelet:latest" } }`)

	said := failPreview(t, stack)
	assert.Contains(t, said, ": it refuses its configuration: ")
	assert.Contains(t, said, "* kubelet image is not valid: ", "the node's own words")
	assert.NotContains(t, said, "does not answer")

	command := exec.CommandContext(t.Context(), compile(t, "./stacks/ops"), "impact")
	command.Dir = stack.Workspace().WorkDir()
	command.Env = append(r.Backend.Environ(),
		pathWith(filepath.Dir(r.Engine().CLI())))
	shown, err := command.CombinedOutput()
	require.Error(t, err, "%s", shown)
	assert.Contains(t, string(shown), "REFUSED: it refuses its configuration: ")
	assert.NotContains(t, string(shown), "Previewing update", "the table, and what is wrong")

	asked := len(calls(r, "/machine.MachineService/ApplyConfiguration"))
	said = failUp(t, stack)
	assert.Contains(t, said, "home-control-1 is not changed: home-control-1: it refuses its configuration: ")
	assert.LessOrEqual(t, len(calls(r, "/machine.MachineService/ApplyConfiguration"))-asked, len(r.Plan.Nodes()),
		"no node is asked twice")
	assert.Empty(t, eventsOf(r, since))

	unset(t, stack, "cluster.patches")
	requireNoChange(t, stack)
}
