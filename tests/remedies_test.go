package tests

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// What follows does what messages tell an operator, by the letter, and nothing else.

var administrator = world.Caller{ID: "root@pam"}

// upRefresh is pulumi up --refresh.
func upRefresh(t *testing.T, s auto.Stack) {
	t.Helper()

	_, err := s.Up(t.Context(), optup.Refresh(), optup.ProgressStreams(newOutput(t)))
	require.NoError(t, err)
}

// qmDestroy is qm stop, where the VM runs, and qm destroy --purge.
func qmDestroy(t *testing.T, r *rehearsal.Rehearsal, vmid int) {
	t.Helper()

	w := r.Lab.World()

	done := func(task string, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			for _, running := range w.Tasks("") {
				if running.End.IsZero() {
					return false
				}
			}

			return true
		}, wait, wait/1000, task)
	}

	if v, err := w.VM("pve1", vmid); err == nil && v.Running {
		done(w.Stop(administrator, "pve1", vmid))
	}

	done(w.Destroy(administrator, "pve1", vmid, world.DestroyRequest{Purge: true}))
}

// TestRemediesOfCreation follows the messages of creations that were cut off.
func TestRemediesOfCreation(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, pair{"template", "metal", "", "reserved"}.stack()))
	w := r.Lab.World()
	n := r.Plan.Nodes()[len(r.Plan.Nodes())-1]

	// A run that was cut off has left a copy of the template.
	_, err := w.Create(administrator, n.Host, world.CreateRequest{VMID: n.VMID, Conf: map[string]string{"name": n.Name}})
	require.NoError(t, err)

	assert.Contains(t, failUp(t, r.Stack), "a run was interrupted while it created the VM, and the VM holds no "+
		"data. Delete it ('qm "+
		fmt.Sprintf("destroy %d --purge' there), then run 'pulumi up' again", n.VMID))
	qmDestroy(t, r, n.VMID)

	// The disk of the copy does not get its size, and the plan wants less by then.
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(fmt.Sprintf(`^PUT .*/qemu/%d/resize$`, n.VMID)),
		Kind: journal.Refuse, Message: "VM is locked (backup)",
	})
	failUp(t, r.Stack)
	set(t, r.Stack, "pools.worker.diskGiB", "20")
	assert.Contains(t, failUp(t, r.Stack), "is not finished: disk scsi0 has 10 GiB instead of 40")
	upRefresh(t, r.Stack)
	requireNoChange(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	// Another one resets the node.
	outputs, err := r.Stack.Outputs(t.Context())
	require.NoError(t, err)
	wipe(t, r, outputs, n.Name)
	set(t, r.Stack, "pools.worker.patches[0]", `machine: { sysctls: { vm.swappiness: "1" } }`)
	require.Eventually(t, func() bool { return strings.Contains(failUp(t, r.Stack), "has lost its configuration") }, wait,
		time.Second)
	set(t, r.Stack, "lifecycle.replace[0]", n.Name)
	set(t, r.Stack, "lifecycle.forceRemove[0]", n.Name)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)
}

// wipe resets a node as 'talosctl reset' does.
func wipe(t *testing.T, r *rehearsal.Rehearsal, outputs auto.OutputMap, node string) {
	t.Helper()

	require.NoError(t, dialNode(t, r, outputs, node).ResetGeneric(t.Context(), &machineapi.ResetRequest{
		Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
			{Label: "STATE", Wipe: true}, {Label: "EPHEMERAL", Wipe: true},
		},
	}))
}

// TestRemediesOfChanges follows the messages of changes that were not made.
func TestRemediesOfChanges(t *testing.T) {
	t.Parallel()

	r := restartable(t)
	w := r.Lab.World()
	worker, _ := w.Snapshot().VM(restartedWorker)

	preview := func() string {
		result, err := r.Stack.Preview(t.Context())
		require.NoError(t, err)

		return result.StdOut
	}
	plant := func(call string, kind journal.Kind, change ...func(*journal.Fault)) {
		f := journal.Fault{Face: journal.Proxmox, Call: regexp.MustCompile(call), Kind: kind}
		for _, c := range change {
			c(&f)
		}

		r.Lab.Journal().Plant(f)
	}

	// Another one has changed the VM, and not restarted it.
	require.NoError(t, w.Update(administrator, worker.Host, worker.ID,
		world.UpdateRequest{Conf: map[string]string{"cores": "3"}}))
	assert.Contains(t, preview(), "wait for its restart: cores")
	require.NoError(t, w.Update(administrator, worker.Host, worker.ID, world.UpdateRequest{Revert: []string{"cores"}}))
	assert.NotContains(t, preview(), "wait for its restart")
	requireNoChange(t, r.Stack)

	// A proxy answers a change in the place of Proxmox VE.
	plant(`^PUT .*/resize$`, journal.Answer, func(f *journal.Fault) { f.Message = "<html>Login</html>" })
	set(t, r.Stack, "pools.worker.diskGiB", "60")
	assert.Contains(t, failUp(t, r.Stack), "it is unknown whether the request was carried out")
	upRefresh(t, r.Stack)
	requireNoChange(t, r.Stack)

	// It limits requests, for longer than the program waits.
	plant(`^GET /version$`, journal.Answer, func(f *journal.Fault) {
		f.Code, f.Header = http.StatusTooManyRequests, http.Header{"Retry-After": {"86400"}}
	})
	assert.Contains(t, failUp(t, r.Stack), "it asks to wait for")
	up(t, r.Stack)

	// A proxy answers instead of Proxmox VE, until it is repaired.
	plant(`^GET /`, journal.Answer, func(f *journal.Fault) { f.Message, f.Times = "<html>Login</html>", math.MaxInt })
	assert.Contains(t, failUp(t, r.Stack), "a proxy may have answered in its place")
	r.Lab.Journal().Clear()
	up(t, r.Stack)

	// The provider could not read the disks after a change.
	loseDisks := func(cores string) {
		plant(`^GET .*/storage/.*/content/.+$`, journal.Refuse, func(f *journal.Fault) { f.Message = "no such volume" })
		set(t, r.Stack, "pools.worker.cores", cores)
		_, _ = r.Stack.Up(t.Context())
		r.Lab.Journal().Clear()
		set(t, r.Stack, "pools.worker.tags[0]", "tag"+cores)
	}

	loseDisks("4")
	assert.Contains(t, failUp(t, r.Stack), "is not finished: the state does not know its disks")

	set(t, r.Stack, "lifecycle.replace[0]", restartedWorker)
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	// Once more, with its name still in the list.
	loseDisks("5")
	assert.Contains(t, failUp(t, r.Stack), "The node is in lifecycle.replace already: remove it from its pool")

	unset(t, r.Stack, "lifecycle.replace")
	set(t, r.Stack, "pools.worker.count", "0")
	up(t, r.Stack)
	set(t, r.Stack, "pools.worker.count", "1")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)
}
