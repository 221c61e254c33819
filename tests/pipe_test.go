package tests

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/chaos/faults"
)

// TestPlainPipe: the reader of a plain 'pulumi up' ends, which kills the CLI while a node is drained. The program does
// not go on without it, and the stack continues as after any killed CLI.
func TestPlainPipe(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.NewReplacer("readyTimeout: 60s", "readyTimeout: 30m, drainTimeout: 30m").
		Replace(pair{"template", "metal", "", "reserved"}.stack())))
	stack := compiled(t, r, "piped")
	api := kubernetesClient(t, upResult(t, stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	const worker = "pair-worker-1"

	hold(t, api, worker, worker)
	set(t, stack, "pools.worker.memoryMiB", "6144")

	before := machine(t, r, worker).PID

	// Plugins look for their CLI every five minutes only.
	t.Cleanup(func() { assert.NoError(t, faults.EndOrphans(r.Backend.Dir())) })

	// The reader ends when the update of the VM begins; the next line, that a pod stays, kills the CLI.
	command := exec.CommandContext(t.Context(), "sh", "-c",
		"pulumi up --yes --skip-preview --stack piped | sed '/-vm updating/q'")
	command.Dir = stack.Workspace().WorkDir()
	command.Env = append(r.Backend.Environ(),
		pathWith(filepath.Dir(r.Engine().CLI())))

	printed, err := command.Output()
	require.NoError(t, err)
	assert.NotContains(t, string(printed), "Resources:", "it was killed")

	_, err = stack.Up(t.Context())
	require.True(t, auto.IsConcurrentUpdateError(err), "%v", err)
	require.NoError(t, stack.Cancel(t.Context()))

	if len(state(t, stack).PendingOperations) > 0 {
		_, err := stack.Refresh(t.Context(), optrefresh.ClearPendingCreates(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
	}

	assert.Equal(t, before, machine(t, r, worker).PID)
	require.NoError(t, api.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), worker, metav1.DeleteOptions{}))
	up(t, stack)
	assert.EqualValues(t, 6144<<20, machine(t, r, worker).Memory)

	n, err := api.CoreV1().Nodes().Get(t.Context(), worker, metav1.GetOptions{})
	require.NoError(t, err)
	assert.False(t, n.Spec.Unschedulable)
	requireNoChange(t, stack)
}
