package tests

import (
	"slices"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/talosapi"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// etcdClusters are the clusters of etcd that there have been.
func etcdClusters(r *rehearsal.Rehearsal) []uint64 {
	var ids []uint64
	for _, q := range r.Talos.Quorum(time.Time{}) {
		ids = append(ids, q.Cluster)
	}

	slices.Sort(ids)

	return slices.Compact(ids)
}

// TestNoSecondEtcd replaces a control plane, and the other two lose their power once it has left. No etcd is begun on
// the one that is left, neither in that update nor in later ones, nor while the others boot. Then it joins them.
func TestNoSecondEtcd(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	operator := world.Caller{ID: r.Lab.Credentials().TokenID}
	others := []string{"home-control-2", "home-control-3"}

	set(t, r.Stack, "lifecycle.readyTimeout", "10s")
	set(t, r.Stack, "lifecycle.nodeTimeout", "10s")
	set(t, r.Stack, "lifecycle.replace[0]", "home-control-1")

	over := make(chan error)

	go func() {
		_, err := r.Stack.Up(t.Context(), optup.ProgressStreams(newOutput(t)))
		over <- err
	}()

	require.Eventually(t, func() bool { return vmids(r)["home-control-1"] == 0 }, wait, time.Millisecond, "its VM goes")

	for _, name := range others {
		_, err := r.Lab.World().Stop(operator, "pve", vmids(r)[name])
		require.NoError(t, err)

		r.Talos.Break(name, talos.EtcdNotStarted)
	}

	require.Error(t, <-over)
	require.Len(t, calls(r, "/Bootstrap"), 1)

	const refused = "no second etcd cluster is bootstrapped: gave up after 10s, waiting for a control plane that " +
		"holds etcd data; none of those that answer does: "

	assert.Contains(t, failUp(t, r.Stack), refused)
	require.Len(t, calls(r, "/Bootstrap"), 1)

	// Their service is in the state of one that waits for a bootstrap; what tells them from it is on their disks.
	for _, name := range others {
		_, err := r.Lab.World().Start(operator, "pve", vmids(r)[name])
		require.NoError(t, err)
	}

	failUp(t, r.Stack)
	require.Len(t, calls(r, "/Bootstrap"), 1)

	for _, name := range others {
		r.Talos.Mend(name, talos.EtcdNotStarted)
	}

	set(t, r.Stack, "lifecycle.readyTimeout", "1m")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Len(t, calls(r, "/Bootstrap"), 1)
	assert.Len(t, etcdClusters(r), 1)

	last := r.Talos.Quorum(time.Time{})
	assert.Equal(t, 3, last[len(last)-1].Healthy)
	requireNoChange(t, r.Stack)
}

// TestTwoEtcds: an operator wipes a control plane while the others are off, and bootstraps it. No run configures a node
// until all members are of one cluster again.
func TestTwoEtcds(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, threeAndOne))
	outputs := upResult(t, r.Stack).Outputs
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireVoters(t, r, 3)

	operator := world.Caller{ID: r.Lab.Credentials().TokenID}
	others := []string{"home-control-1", "home-control-2"}
	api := dialNode(t, r, outputs, "home-control-3")

	wipe := func() {
		require.NoError(t, api.ResetGeneric(t.Context(), &machineapi.ResetRequest{
			Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
		}))
	}

	for _, name := range others {
		_, err := r.Lab.World().Stop(operator, "pve", vmids(r)[name])
		require.NoError(t, err)
	}

	wipe()
	require.Eventually(t, func() bool { return api.Bootstrap(t.Context(), &machineapi.BootstrapRequest{}) == nil }, wait,
		100*time.Millisecond)

	for _, name := range others {
		_, err := r.Lab.World().Start(operator, "pve", vmids(r)[name])
		require.NoError(t, err)
	}

	require.Eventually(t, func() bool { return len(etcdClusters(r)) == 2 }, wait, 100*time.Millisecond)

	var (
		targets     []talosapi.Target
		credentials talosapi.Credentials
	)

	for _, n := range r.Plan.ControlPlanes() {
		var target talosapi.Target
		target, credentials = nodeOf(t, r, outputs, n.Name)
		targets = append(targets, target)
	}

	require.Eventually(t, func() bool { return talosapi.OneEtcd(t.Context(), targets, credentials) != nil }, wait,
		100*time.Millisecond, "members answer that are up")

	set(t, r.Stack, "pools.worker.count", "2")

	const refused = "home-control-1 and home-control-3 run members of two different etcd clusters, so no node is " +
		"configured"

	since := time.Now()

	assert.Contains(t, failUp(t, r.Stack), refused)
	assert.Empty(t, eventsOf(r, since))

	// As the message says.
	wipe()
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	require.Eventually(t, func() bool {
		all := r.Talos.Quorum(time.Time{})

		return all[len(all)-1].Healthy == 3
	}, wait, 50*time.Millisecond)
}
