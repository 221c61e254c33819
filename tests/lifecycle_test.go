package tests

import (
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// TestLifecycle brings the stack dev up, changes it and takes it away, and compares the lab's world at every step, on
// both versions of Proxmox VE.
func TestLifecycle(t *testing.T) {
	t.Parallel()

	for _, version := range []world.Version{world.Version9, world.Version8} {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			testLifecycle(t, version)
		})
	}
}

func testLifecycle(t *testing.T, version world.Version) {
	t.Helper()

	r := rehearse(t, "dev", onProxmox(version))
	before := r.Lab.World().Snapshot()

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	deployed, identities := r.Lab.World().Snapshot(), urns(t, r.Stack)

	t.Run("nodes are where the plan has them", func(t *testing.T) {
		for i, n := range r.Nodes() {
			planned := r.Plan.Nodes()[i]
			assert.Equal(t, planned.Address.String(), n.Address)
			assert.Equal(t, planned.MAC, n.MAC)
			assert.Equal(t, planned.Host, n.Host)
			assert.Equal(t, r.Plan.Talos, n.Talos)
			assert.True(t, n.Ready, n.State)
		}
	})

	t.Run("up again changes nothing", func(t *testing.T) {
		dependencies := func() any {
			for _, resource := range state(t, r.Stack).Resources {
				if resource.URN.Name() == "k3s-dev-worker-1-vm" {
					return resource.Dependencies
				}
			}

			return "no such worker"
		}

		depends := dependencies()
		requireOnlySame(t, upChanges(t, r.Stack))
		assert.Equal(t, depends, dependencies(), "with others, the engine would write the whole state for each worker")
		requireSettled(t, r.Stack)
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
	})

	t.Run("a second worker touches nothing else", func(t *testing.T) {
		set(t, r.Stack, "pools.worker.count", "2")
		// The engine's own provider is in the state, and counted nowhere.
		assert.Equal(t, map[string]int{"create": 3, "same": len(identities) - 1}, upChanges(t, r.Stack))

		grown := r.Lab.World().Snapshot()
		assert.Len(t, grown.VMs, len(deployed.VMs)+1)
		assert.Subset(t, grown.VMs, deployed.VMs)
		assert.Subset(t, urns(t, r.Stack), identities)
		requireNoChange(t, r.Stack)
	})

	t.Run("one worker again", func(t *testing.T) {
		set(t, r.Stack, "pools.worker.count", "1")
		up(t, r.Stack)
		assert.Equal(t, deployed, r.Lab.World().Snapshot())
		assert.Equal(t, identities, urns(t, r.Stack))
		requireNoChange(t, r.Stack)
	})

	t.Run("destroy leaves nothing", func(t *testing.T) {
		destroy(t, r.Stack)
		assert.Equal(t, before, r.Lab.World().Snapshot())
		assert.Empty(t, state(t, r.Stack).Resources)
	})
}

// TestOrder holds the order of the steps, as the lab saw them: machines side by side, control planes configured before
// workers, the bootstrap without waiting for workers.
func TestOrder(t *testing.T) {
	t.Parallel()

	stack := devWith(t, "count: 1\n      vmids: 401-409", "count: 3\n      vmids: 401-409",
		"count: 1\n      vmids: 501-549", "count: 2\n      vmids: 501-549")
	r := rehearse(t, stack, func(o *rehearsal.Options) { o.Latencies.Clone = slow })
	up(t, r.Stack)

	var controls, workers []string

	for _, n := range r.Plan.Nodes() {
		if strings.Contains(n.Name, "control") {
			controls = append(controls, n.Name)
		} else {
			workers = append(workers, n.Name)
		}
	}

	configured := map[string]int{}
	bootstrapped, clones, started := -1, []int{}, -1

	for i, e := range r.Lab.Journal().Entries() {
		switch {
		case strings.HasSuffix(e.Call, "/clone"):
			clones = append(clones, i)
		case strings.HasSuffix(e.Call, "/status/start") && started < 0:
			started = i
		case strings.HasSuffix(e.Call, "/ApplyConfiguration"):
			configured[e.Subject] = i
		case strings.HasSuffix(e.Call, "/Bootstrap"):
			bootstrapped = i
		}
	}

	require.Len(t, clones, 5)
	assert.Less(t, slices.Max(clones), started, "every clone was asked for before the first was done")

	for _, c := range controls {
		assert.Less(t, configured[c], bootstrapped)

		for _, w := range workers {
			assert.Less(t, configured[c], configured[w])
		}
	}
}

func addressOf(r *rehearsal.Rehearsal, name string) string {
	for _, n := range r.Plan.Nodes() {
		if n.Name == name {
			return n.Address.String()
		}
	}

	return ""
}

// TestBootstrapDoesNotWaitForWorkers holds a worker back: the cluster starts without it.
func TestBootstrapDoesNotWaitForWorkers(t *testing.T) {
	t.Parallel()

	stack := devWith(t, "addresses: 192.168.10.21-192.168.10.49",
		"addresses: 192.168.10.21-192.168.10.49\n      names: deaf-{n}")
	r := rehearse(t, stack, func(o *rehearsal.Options) { o.Silent = []string{"deaf-1"} })
	set(t, r.Stack, "lifecycle.nodeTimeout", "15s")

	said := failUp(t, r.Stack)
	assert.Contains(t, said, "gave up after 15s, waiting for deaf-1 to answer")

	assert.Contains(t, calls(r, "/Bootstrap"), "talos k3s-dev-control-1 /machine.MachineService/Bootstrap")
}

// TestSilentAgent: a guest agent that says nothing costs the wait that the operator chose, not the provider's quarter
// of an hour. The cluster is there without its node, which joins as soon as the agent speaks.
func TestSilentAgent(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(pair{"iso", "metal", "", "agent"}.stack(), "agentTimeout: 20s",
		"agentTimeout: 3s", 1)))
	r.Lab.World().SilenceAgent(501, true)

	said := failUp(t, r.Stack)
	assert.Regexp(t,
		`pair-worker-1 \(VMID 501, \S+\) reports no address inside network\.cidr .* lifecycle\.agentTimeout \(3s\) bounds the wait`, said)
	assert.Contains(t, calls(r, "/Bootstrap"), "talos pair-control-1 /machine.MachineService/Bootstrap")

	r.Lab.World().SilenceAgent(501, false)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
}

// TestGoneVM: a VM that is gone, and whose address the state does not know, is named. The command is run again with
// --refresh, as the message says.
func TestGoneVM(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"iso", "metal", "", "agent"}.stack()))
	up(t, r.Stack)

	r.Lab.World().SilenceAgent(501, true)

	_, err := r.Stack.Refresh(t.Context())
	require.NoError(t, err)

	remove(t, r, 501)

	out := newOutput(t)

	set(t, r.Stack, "lifecycle.teardown", "true")
	_, err = r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.ProgressStreams(out))
	require.Error(t, err)
	assert.Contains(t, out.String(), "pair-worker-1: VM 501 does not exist on Proxmox VE")

	_, err = r.Stack.Destroy(t.Context(), optdestroy.RunProgram(true), optdestroy.Refresh(), optdestroy.ProgressStreams(out))
	require.NoError(t, err)
	assert.Empty(t, r.Lab.World().Snapshot().VMs)
}

// TestWithoutDiscovery: workers that learn from Kubernetes alone where the control planes are get their certificates
// once it runs, and nothing waits for them before.
func TestWithoutDiscovery(t *testing.T) {
	t.Parallel()

	r := rehearse(t, devWith(t))
	set(t, r.Stack, "cluster.discovery", "none")
	set(t, r.Stack, "lifecycle.bootstrapWaitsForWorkers", "true")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)
}
