package tests

import (
	"slices"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/rehearsal"
)

// rolling is a cluster with three control planes, that may be upgraded.
const rolling = `config:
  talos-proxmox:proxmox:
    endpoint: https://pve.lan:8006
    tokenId: pulumi@pve!talos
    hosts: [{ name: pve1 }, { name: pve2 }]
  talos-proxmox:cluster:
    name: roll
    ha: true
    versions: { talos: v1.11.6, kubernetes: v1.33.6 }
  talos-proxmox:image:
    source: factory
    platform: metal
    factory: { format: iso, extensions: [qemu-guest-agent] }
  talos-proxmox:network:
    addressing: static
    cidr: 10.40.0.0/16
    gateway: 10.40.0.1
  talos-proxmox:lifecycle:
    keepImages: false
    nodeTimeout: 60s
    readyTimeout: 60s
    drainTimeout: 20s
    upgrade: { maxUnavailable: 2, timeout: 60s }
  talos-proxmox:pools:
    control: { role: controlplane, count: 3, addresses: 10.40.0.11-13 }
    worker: { role: worker, count: 3, addresses: 10.40.0.21-29 }
`

// deeds are what was done to each node since a time, but for boots.
func deeds(r *rehearsal.Rehearsal, since time.Time) map[string][]talos.Deed {
	found := map[string][]talos.Deed{}

	for _, h := range r.Talos.Happenings(since) {
		if h.Deed != talos.Booted {
			found[h.Node] = append(found[h.Node], h.Deed)
		}
	}

	return found
}

// requireOrderly holds that no more nodes were down at once than may be, and that etcd had its quorum all the time.
func requireOrderly(t *testing.T, r *rehearsal.Rehearsal, since time.Time, workers int) {
	t.Helper()

	outages := r.Talos.Outages(since)
	of := func(role string) []talos.Outage {
		return slices.DeleteFunc(slices.Clone(outages), func(o talos.Outage) bool { return o.Role != role })
	}

	most, at := talos.MostDown(of("controlplane"))
	assert.LessOrEqual(t, most, 1, "control planes at %s: %v", at, outages)

	most, at = talos.MostDown(of("worker"))
	assert.LessOrEqual(t, most, workers, "workers at %s: %v", at, outages)

	if controls, workers := of("controlplane"), of("worker"); len(controls) > 0 && len(workers) > 0 {
		assert.True(t, controls[len(controls)-1].To.Before(workers[0].From), "control planes go first")
	}
}

// TestUpgrade goes from one minor version of Talos to the next, with an extension more: in place, in turns, and once.
func TestUpgrade(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, rolling))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	before, made := vmids(r), time.Now()

	set(t, r.Stack, "cluster.versions.talos", "v1.12.4")
	set(t, r.Stack, "image.factory.extensions[1]", "tailscale")

	out := newOutput(t)
	preview, err := r.Stack.Preview(t.Context(), optpreview.ProgressStreams(out))
	require.NoError(t, err)
	assert.Zero(t, previewed(preview.ChangeSummary)["delete"])

	for _, name := range []string{"roll-control-1", "roll-control-2", "roll-control-3", "roll-worker-1", "roll-worker-2", "roll-worker-3"} {
		assert.Contains(t, out.String(), name+": upgrade, for Talos v1.11.6 becomes v1.12.4, schematic ")
	}

	assert.Contains(t, out.String(), "; etcd meanwhile: 2 of 3, 2 needed")
	assert.Empty(t, deeds(r, made), "a preview changes nothing")

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, before, vmids(r))
	requireOrderly(t, r, made, 2)

	for _, n := range r.Nodes() {
		assert.Equal(t, "v1.12.4", n.Talos)
		assert.Equal(t, []talos.Deed{talos.Upgraded, talos.Applied}, deeds(r, made)[n.Name], n.Name)
	}

	requireNoChange(t, r.Stack)
}
