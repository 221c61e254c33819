package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/etcdbackup"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// TestMadeAgain takes machines away behind the program's back: a worker, and then the only control plane. What is made
// again is configured again. A cluster that has lost its etcd begins with a snapshot, or empty where the operator says
// so, and never by itself.
func TestMadeAgain(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	t.Run("a worker that an operator deleted", func(t *testing.T) {
		remove(t, r, 501)
		upRefresh(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		// Each time by the program, and then by the provider.
		assert.Len(t, calls(r, "k3s-dev-worker-1 /machine.MachineService/ApplyConfiguration"), 4)
		assert.Len(t, calls(r, "k3s-dev-control-1 /machine.MachineService/ApplyConfiguration"), 2,
			"the other node is left alone")
		requireNoChange(t, r.Stack)
	})

	const refused = "etcd is lost: no control plane holds its data, and k3s-dev would start as an empty cluster; "

	// lose takes the only control plane away, and does what the page about recovery says.
	lose := func(t *testing.T, newest string) {
		t.Helper()

		bootstraps := len(calls(r, "/Bootstrap"))
		remove(t, r, 401)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		assert.Contains(t, failPreview(t, r.Stack), refused+newest)

		// Again and again: the machine that is made meanwhile changes nothing about it.
		for range 2 {
			assert.Contains(t, failUp(t, r.Stack), refused+newest)
		}

		assert.Len(t, calls(r, "/Bootstrap"), bootstraps)
	}

	t.Run("the only control plane, with an empty cluster", func(t *testing.T) {
		lose(t, "no snapshot of it is in ./etcd-backups; to start from a snapshot, set cluster.recoverFrom to it; "+
			"to start with an empty cluster, "+
			"set lifecycle.acceptEmptyCluster to k3s-dev; ")

		set(t, r.Stack, "lifecycle.acceptEmptyCluster", "another")
		assert.Contains(t, failPreview(t, r.Stack), "lifecycle.acceptEmptyCluster: must be the name of the cluster, k3s-dev")

		set(t, r.Stack, "lifecycle.acceptEmptyCluster", "k3s-dev")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.Len(t, calls(r, "/Bootstrap"), 2)
		requireNoChange(t, r.Stack)
	})

	t.Run("what was said once counts once", func(t *testing.T) {
		remove(t, r, 401)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		assert.Contains(t, failUp(t, r.Stack), "lifecycle.acceptEmptyCluster was already applied once")
		assert.Len(t, calls(r, "/Bootstrap"), 2)

		unset(t, r.Stack, "lifecycle.acceptEmptyCluster")
		assert.Contains(t, failUp(t, r.Stack), refused)
		assert.Len(t, calls(r, "/Bootstrap"), 2)

		cli(t, r, "state", "delete", "--yes", urnOf(t, r, "k3s-dev-empty"))
		set(t, r.Stack, "lifecycle.acceptEmptyCluster", "k3s-dev")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))

		unset(t, r.Stack, "lifecycle.acceptEmptyCluster")
		up(t, r.Stack)
		requireNoChange(t, r.Stack)
	})

	t.Run("the only control plane, with a snapshot", func(t *testing.T) {
		project := r.Stack.Workspace().WorkDir()
		command := exec.CommandContext(t.Context(), compile(t, "./stacks/ops"), "-C", project, "-s", r.Stack.Name(), "etcd",
			"snapshot")
		command.Env = append(r.Backend.Environ(),
			pathWith(filepath.Dir(r.Engine().CLI())))
		said, err := command.CombinedOutput()
		require.NoError(t, err, "%s", said)

		kept, err := etcdbackup.Store{Dir: filepath.Join(project, "etcd-backups"), Cluster: "k3s-dev"}.List()
		require.NoError(t, err)
		require.Len(t, kept, 1)
		require.NotEmpty(t, kept[0].ClusterCA)

		// A newer one, of another cluster with the same name, is not offered.
		other := filepath.Join(project, "etcd-backups", "k3s-dev.20991231-235959.db")
		require.NoError(t, os.WriteFile(other, nil, 0o600))
		require.NoError(t, os.WriteFile(etcdbackup.NoteOf(other), []byte(`{"clusterCa": "00"}`), 0o600))

		snapshot := "etcd-backups/" + filepath.Base(kept[0].Path)
		lose(t, "its newest snapshot is "+snapshot+"; to start from a snapshot, set cluster.recoverFrom to it; ")

		set(t, r.Stack, "cluster.recoverFrom", snapshot)
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.Len(t, calls(r, "/Bootstrap"), 4)
		requireNoChange(t, r.Stack)

		// An operator resets it.
		outputs, err := r.Stack.Outputs(t.Context())
		require.NoError(t, err)
		wipe(t, r, outputs, "k3s-dev-control-1")
		set(t, r.Stack, "cluster.patches[0]", `machine: { sysctls: { vm.swappiness: "1" } }`)
		require.Eventually(t, func() bool {
			return strings.Contains(failUp(t, r.Stack), "It was the only control plane, so the data of etcd are lost with it: "+
				"switch off its VM ('qm stop 401'), set cluster.recoverFrom to a snapshot, and name the node in "+
				"lifecycle.replace, then run 'pulumi up' again")
		}, wait, time.Second)

		_, err = r.Lab.World().Stop(world.Caller{ID: r.Lab.Credentials().TokenID}, "pve", 401)
		require.NoError(t, err)
		set(t, r.Stack, "lifecycle.replace[0]", "k3s-dev-control-1")
		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		requireNoChange(t, r.Stack)
	})
}

// remove deletes a VM as an operator does by hand.
func remove(t *testing.T, r *rehearsal.Rehearsal, vmid int) {
	t.Helper()

	w, operator := r.Lab.World(), world.Caller{ID: r.Lab.Credentials().TokenID}
	host := ""

	for _, vm := range w.Snapshot().VMs {
		if vm.ID == vmid {
			host = vm.Host
		}
	}

	_, err := w.Stop(operator, host, vmid)
	require.NoError(t, err)

	require.Eventually(t, func() bool {
		_, err = w.Destroy(operator, host, vmid, world.DestroyRequest{Unreferenced: true})

		return err == nil
	}, wait, 100*time.Millisecond, "%v", err)

	require.Eventually(t, func() bool {
		for _, vm := range w.Snapshot().VMs {
			if vm.ID == vmid {
				return false
			}
		}

		return true
	}, wait, 100*time.Millisecond)
}

func urnOf(t *testing.T, r *rehearsal.Rehearsal, name string) string {
	t.Helper()

	for _, urn := range urns(t, r.Stack) {
		if strings.HasSuffix(urn, "::"+name) {
			return urn
		}
	}

	require.Fail(t, "no resource "+name)

	return ""
}
