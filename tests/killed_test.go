package tests

import (
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/tests/engine"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// rehearseKillable is like rehearse, with a CLI that can be killed.
func rehearseKillable(t *testing.T, stack string, change ...func(*rehearsal.Options)) (*rehearsal.Rehearsal,
	*engine.Command,
) {
	t.Helper()

	e, err := theEngine()
	require.NoError(t, err)

	command := e.NewCommand()

	return rehearse(t, stack, append(change, func(o *rehearsal.Options) {
		o.Workspace = []auto.LocalWorkspaceOption{auto.Pulumi(command)}
	})...), command
}

// killAt begins an update, kills the CLI once a node has done something, and does what the page about troubleshooting
// says then: cancel what locks the stack, and refresh where the state has operations under way.
func killAt(t *testing.T, r *rehearsal.Rehearsal, command *engine.Command, kind talos.EventKind) {
	t.Helper()

	begun, over := time.Now(), make(chan struct{})

	go func() {
		for ; ; time.Sleep(5 * time.Millisecond) {
			select {
			case <-over:
				return
			default:
			}

			if slices.ContainsFunc(r.Talos.Events(begun), func(h talos.Event) bool { return h.Kind == kind }) {
				command.Kill()

				return
			}
		}
	}()

	_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(newOutput(t)))
	close(over)
	require.Error(t, err)
	require.True(t, command.Killed(), "it failed before it was killed: %v", err)

	// Its plugins end what they are at, and a node does what it has taken on.
	require.Eventually(t, func() bool {
		booting := map[string]bool{}

		for _, h := range r.Talos.Events(begun) {
			booting[h.Node] = h.Kind == talos.Upgraded || h.Kind == talos.Rebooted || booting[h.Node] && h.Kind != talos.Booted
		}

		return !slices.Contains(slices.Collect(maps.Values(booting)), true) &&
			!slices.ContainsFunc(r.Lab.World().Tasks(""), func(task world.TaskInfo) bool { return task.End.IsZero() })
	}, wait, 50*time.Millisecond)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	unlock(t, r)
}

// unlock cancels what locks the stack, and refreshes where the state has operations under way.
func unlock(t *testing.T, r *rehearsal.Rehearsal) {
	t.Helper()

	require.NoError(t, r.Stack.Cancel(t.Context()))

	if len(state(t, r.Stack).PendingOperations) > 0 {
		_, err := r.Stack.Refresh(t.Context(), optrefresh.ClearPendingCreates(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)
	}
}

// uuids are what tells each VM from one that was made in its place.
func uuids(t *testing.T, r *rehearsal.Rehearsal) map[string]any {
	t.Helper()

	found := map[string]any{}
	for _, n := range r.Plan.Nodes() {
		found[n.Name] = vmConfig(t, r, n.Name)["smbios1"]
	}

	return found
}

// requireKilledAndContinued makes a change that was set, kills it half-way, and goes on: what the table says happens to
// each node happens, and no more; machines stay, nodes go down in turns, etcd keeps its quorum.
func requireKilledAndContinued(t *testing.T, r *rehearsal.Rehearsal, command *engine.Command, kind talos.EventKind,
	workers int,
) {
	t.Helper()

	since, machines, table := time.Now(), uuids(t, r), impactTable(t, r)
	assert.Empty(t, eventsOf(r, since), "a preview changes nothing")

	killAt(t, r, command, kind)
	require.Less(t, len(eventsOf(r, since)), len(r.Plan.Nodes()), "killed half-way")

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	assert.Equal(t, effects(table), happened(r, since))
	assert.Equal(t, machines, uuids(t, r))
	assert.Empty(t, r.Talos.Violations(since))
	assert.Empty(t, cordoned(t, r))
	requireOrderly(t, r, since, workers)
	requireVoters(t, r, 3)
}

// manyNodes lets the upgrade of a large cluster be tested, which takes minutes.
const manyNodes = "TALOS_PROXMOX_TEST_MANY_NODES"

// TestUpgradeOfTwenty takes a cluster of twenty nodes from one minor version of Talos to the next, with an extension
// more, and then of Kubernetes. Each is killed half-way.
func TestUpgradeOfTwenty(t *testing.T) {
	if os.Getenv(manyNodes) == "" {
		t.Skip("set " + manyNodes + " to upgrade a cluster of twenty nodes")
	}

	t.Parallel()

	r, command := rehearseKillable(t, stackFile(t, strings.NewReplacer(
		"platform: metal", "platform: nocloud", "count: 3, addresses: 10.40.0.21-29", "count: 17, addresses: 10.40.0.21-49",
		"maxUnavailable: 2", "maxUnavailable: 4",
		"timeout: 60s", "timeout: 5m", "readyTimeout: 60s", "readyTimeout: 5m", "nodeTimeout: 60s", "nodeTimeout: 5m",
	).Replace(rolling)))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), 5*wait))
	require.Len(t, r.Nodes(), 20)

	set(t, r.Stack, "cluster.versions.talos", "v1.12.4")
	set(t, r.Stack, "image.factory.extensions[1]", "tailscale")
	requireKilledAndContinued(t, r, command, talos.Upgraded, 4)

	for _, n := range r.Nodes() {
		assert.Equal(t, "v1.12.4", n.Talos, n.Name)
	}

	set(t, r.Stack, "cluster.versions.kubernetes", "v1.34.2")

	since := time.Now()
	requireKilledAndContinued(t, r, command, talos.Applied, 4)
	assert.Empty(t, r.Talos.Outages(since), "no node goes down for Kubernetes")
	requireNoChange(t, r.Stack)
}

// TestInterrupted: Ctrl-C, or what a service manager or a pipeline sends, ends what an update waits for, which would take
// half an hour, and leaves nodes open to pods.
func TestInterrupted(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	command := e.NewCommand()
	r := rehearse(t, stackFile(t, strings.NewReplacer("worker: { role: worker, count: 1",
		"worker: { role: worker, count: 2", "readyTimeout: 60s",
		"readyTimeout: 30m, drainTimeout: 30m").Replace(pair{"template", "metal", "", "reserved"}.stack())))
	stack := compiled(t, r, "interrupted", auto.Pulumi(command))
	api := kubernetesClient(t, upResult(t, stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	workers := []string{"pair-worker-1", "pair-worker-2"}
	for _, name := range workers {
		hold(t, api, name, name)
	}

	set(t, stack, "pools.worker.memoryMiB", "6144")

	before := machine(t, r, workers[0]).PID

	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		said, evictions := make(chan string), len(calls(r, "/eviction"))

		go func() {
			out := newOutput(t)
			_, err := stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
			assert.Error(t, err)
			said <- out.String()
		}()

		require.Eventually(t, func() bool { return len(calls(r, "/eviction")) > evictions+3 }, wait, 50*time.Millisecond)
		require.NoError(t, command.Signal(signal))

		var printed string
		select {
		case printed = <-said:
		case <-time.After(wait):
			require.NoError(t, command.Signal(signal))
			t.Fatalf("one signal has not ended it: %s", <-said)
		}

		assert.Contains(t, printed, "interrupted while it waited for its turn")
		assert.NotContains(t, printed, "gave up after")
		assert.Equal(t, before, machine(t, r, workers[0]).PID)

		for _, name := range workers {
			n, err := api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.False(t, n.Spec.Unschedulable, name)
		}
	}

	for _, name := range workers {
		require.NoError(t, api.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}

	up(t, stack)
	assert.EqualValues(t, 6144<<20, machine(t, r, workers[1]).Memory)
	requireNoChange(t, stack)
}
