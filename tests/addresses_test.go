package tests

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/talos"
)

// TestSwappedAddresses: after a failure of the DHCP server, two nodes have each other's addresses. Both show certificates
// of the cluster, and nothing is done to the one that is not meant.
func TestSwappedAddresses(t *testing.T) {
	t.Parallel()

	p := pair{"template", "metal", "", "reserved"}
	r := rehearse(t, stackFile(t, strings.Replace(p.stack(), "role: worker, count: 1", "role: worker, count: 2", 1)))
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	one, two := r.Plan.Nodes()[1], r.Plan.Nodes()[2]
	since := time.Now()
	swap := func(first, second netip.Addr) {
		r.Lab.Reserve(map[string]netip.Addr{one.MAC: first, two.MAC: second})

		for _, name := range []string{one.Name, two.Name} {
			reset(t, r, name)
		}

		require.EventuallyWithT(t, func(c *assert.CollectT) {
			for _, n := range r.Nodes() {
				switch n.Name {
				case one.Name:
					assert.Equal(c, first.String(), n.Address)
				case two.Name:
					assert.Equal(c, second.String(), n.Address)
				}
			}
		}, wait, 50*time.Millisecond)
		require.NoError(t, r.WaitReady(t.Context(), wait))
	}

	swap(two.Address, one.Address)

	// What is sent to the one would reach the other.
	set(t, r.Stack, "lifecycle.nodeTimeout", "5s")
	set(t, r.Stack, "pools.worker.patches[0]", "machine: { sysctls: { a: b } }")
	assert.Contains(t, failUp(t, r.Stack), "another node of the cluster answers at "+one.Address.String()+
		`: it shows SMBIOS UUID "`+uuidIn(t, r, two.Name)+`", and `+one.Name+" has "+uuidIn(t, r, one.Name))
	unset(t, r.Stack, "pools.worker.patches")

	set(t, r.Stack, "pools.worker.count", "1")
	assert.Regexp(t, two.Name+` is not removed: it does not answer at `+two.Address.String()+
		` \(.*another node of the cluster answers at `+two.Address.String(), failUp(t, r.Stack))
	assert.ElementsMatch(t, []string{"pair-control-1", one.Name, two.Name}, kubernetesNodes(t, api))

	for name, did := range eventsOf(r, since) {
		assert.NotContains(t, did, talos.WasReset, name)
		assert.NotContains(t, did, talos.Applied, name)
	}

	swap(one.Address, two.Address)
	up(t, r.Stack)
	assert.ElementsMatch(t, []string{"pair-control-1", one.Name}, kubernetesNodes(t, api))
	assert.Contains(t, eventsOf(r, since)[two.Name], talos.WasReset)
	assert.NotContains(t, eventsOf(r, since)[one.Name], talos.WasReset)
}

// TestReplacedWithAnotherAddress: a node whose VM is made again with another address leaves the cluster before, as
// every other does.
func TestReplacedWithAnotherAddress(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"factory", "nocloud", "iso", "static"}.stack()))
	api := kubernetesClient(t, upResult(t, r.Stack).Outputs)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	since := time.Now()
	other := r.Plan.Nodes()[1].Address.Next().Next()

	set(t, r.Stack, "pools.worker.addresses", other.String())
	set(t, r.Stack, "lifecycle.replace[0]", "pair-worker-1")

	// A budget that holds a pod holds its node, too.
	hold(t, api, "held", "pair-worker-1")
	set(t, r.Stack, "lifecycle.drainTimeout", "2s")
	assert.Contains(t, failUp(t, r.Stack), "pair-worker-1 is not removed")
	assert.Empty(t, eventsOf(r, since))

	set(t, r.Stack, "lifecycle.forceRemove[0]", "pair-worker-1")
	up(t, r.Stack)
	assert.Contains(t, eventsOf(r, since)["pair-worker-1"], talos.WasReset)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	// The list may stay: an address that changes later makes no node leave.
	unset(t, r.Stack, "lifecycle.forceRemove")
	requireNoChange(t, r.Stack)
}

// TestSilentAgentRestart: a node of a running cluster whose guest agent does not answer is still one of the cluster.
func TestSilentAgentRestart(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(pair{"iso", "metal", "", "agent"}.stack(), "agentTimeout: 20s",
		"agentTimeout: 3s", 1)))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	r.Lab.World().SilenceAgent(501, true)
	set(t, r.Stack, "lifecycle.upgrade.timeout", "5s")
	set(t, r.Stack, "pools.worker.memoryMiB", "6144")

	out := newOutput(t)
	_, _ = r.Stack.Up(t.Context(), optup.ProgressStreams(out), optup.ErrorProgressStreams(out))
	assert.Contains(t, out.String(), "pair-worker-1 does not answer (its address is not known), but is ready in "+
		"Kubernetes: it is drained")

	r.Lab.World().SilenceAgent(501, false)
	unset(t, r.Stack, "lifecycle.upgrade")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
}
