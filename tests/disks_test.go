package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
