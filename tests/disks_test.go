package tests

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/rehearsal"
)

// TestDiskRemoved: a disk that leaves the configuration is refused in the preview, before anything else of the change
// is made. The message names the way, which works.
func TestDiskRemoved(t *testing.T) {
	t.Parallel()

	for _, p := range []pair{{"template", "metal", "", "reserved"}, {"factory", "nocloud", "iso", "static"}} {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()

			r := rehearse(t, stackFile(t, strings.Replace(p.stack(), "worker: { role: worker,",
				"worker: { role: worker, extraDisks: [{ sizeGiB: 20 }],", 1)))
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))

			const worker = "pair-worker-1"

			before, machines := vmConfig(t, r, worker), vmids(r)

			unset(t, r.Stack, "pools.worker.extraDisks")
			set(t, r.Stack, "pools.worker.cores", "4")

			for _, said := range []string{failPreview(t, r.Stack), failUp(t, r.Stack)} {
				assert.Contains(t, said, "extraDisks: a disk is not removed from a VM, because its data would be "+
					"lost (given: "+
					"pair-worker-1 without scsi1, "+
					"which has 20 GiB on local-lvm); put it back (a disk without an interface gets the one after "+
					"the previous disk); or name the node "+
					"in lifecycle.replace: its VM is recreated without it, and all data on its disks is lost")
			}

			assert.Equal(t, before, vmConfig(t, r, worker), "nothing is done by half")

			set(t, r.Stack, "lifecycle.replace[0]", worker)
			up(t, r.Stack)
			require.NoError(t, r.WaitReady(t.Context(), wait))

			after := vmConfig(t, r, worker)
			assert.EqualValues(t, 4, after["cores"])
			assert.NotContains(t, after, "scsi1")
			assert.NotContains(t, after, "unused0")
			assert.Equal(t, machines, vmids(r))
			requireNoChange(t, r.Stack)
		})
	}
}

// waitingSettings are those of a VM that wait for its restart.
func waitingSettings(t *testing.T, r *rehearsal.Rehearsal, name string) map[string]any {
	t.Helper()

	v := machine(t, r, name)

	items, err := r.Lab.World().Pending(v.Host, v.ID)
	require.NoError(t, err)

	found := map[string]any{}

	for _, item := range items {
		if item.Pending != nil {
			found[item.Key] = item.Pending
		}
	}

	return found
}

// TestDiskOptionsChanged: Proxmox VE keeps other options of a disk, and a new SATA disk, pending until the VM is
// restarted, and the provider does not restart it. The preview announces the restart, and the node is drained for it.
func TestDiskOptionsChanged(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(pair{"template", "metal", "", "reserved"}.stack(),
		"worker: { role: worker,", "worker: { role: worker, extraDisks: [{ sizeGiB: 20 }],", 1)))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireSettled(t, r.Stack)

	change := func(key, value string) {
		set(t, r.Stack, key, value)

		before := machine(t, r, restartedWorker).PID

		assert.Contains(t, previewOf(t, r.Stack), "VM: disks")

		said := upResult(t, r.Stack)
		assert.Contains(t, said.StdOut, "the VM of pair-worker-1 restarts (disks)")
		require.NoError(t, r.WaitReady(t.Context(), wait))
		assert.Empty(t, waitingSettings(t, r, restartedWorker))
		assert.NotEqual(t, before, machine(t, r, restartedWorker).PID, "it was restarted")
		requireNoChange(t, r.Stack)
	}

	change("pools.worker.extraDisks[0].cache", "writeback")
	assert.Contains(t, vmConfig(t, r, restartedWorker)["scsi1"], "cache=writeback")

	set(t, r.Stack, "pools.worker.extraDisks[0].sizeGiB", "30")
	change("pools.worker.extraDisks[0].discard", "false")
	assert.Contains(t, vmConfig(t, r, restartedWorker)["scsi1"], "discard=ignore")
	assert.Contains(t, vmConfig(t, r, restartedWorker)["scsi1"], "size=30G")

	set(t, r.Stack, "pools.worker.extraDisks[1].interface", "sata1")
	change("pools.worker.extraDisks[1].sizeGiB", "10")
	assert.Contains(t, vmConfig(t, r, restartedWorker)["sata1"], "size=10G")

	before := machine(t, r, restartedWorker).PID

	set(t, r.Stack, "pools.worker.extraDisks[1].sizeGiB", "20")
	set(t, r.Stack, "pools.worker.extraDisks[0].backup", "false")
	up(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, restartedWorker)["sata1"], "size=20G")
	assert.Contains(t, vmConfig(t, r, restartedWorker)["scsi1"], "backup=0")
	assert.Equal(t, before, machine(t, r, restartedWorker).PID, "it runs on")
	assert.Empty(t, waitingSettings(t, r, restartedWorker))
	requireNoChange(t, r.Stack)

	// Without its restart the change stays pending. The next update makes up for it.
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`^POST .*/status/reboot$`), Kind: journal.Refuse,
		Message: "guest is not allowed to reboot",
	})
	set(t, r.Stack, "pools.worker.extraDisks[1].ssd", "true")
	assert.Contains(t, failUp(t, r.Stack), "pair-worker-1 does not run with the change of its VM: ")
	assert.Contains(t, waitingSettings(t, r, restartedWorker), "sata1")
	assert.Contains(t, previewOf(t, r.Stack), "sata1, since an earlier update")
	up(t, r.Stack)
	assert.Empty(t, waitingSettings(t, r, restartedWorker))
	requireNoChange(t, r.Stack)

	set(t, r.Stack, "lifecycle.apply", "noReboot")
	set(t, r.Stack, "pools.worker.extraDisks[0].cache", "none")
	assert.Contains(t, failPreview(t, r.Stack), "this change of the VM (disks) needs a restart, which noReboot forbids")
}
