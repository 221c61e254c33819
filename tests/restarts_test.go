package tests

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// restartable is the stack of a control plane and two workers, all clones of a template.
func restartable(t *testing.T) *rehearsal.Rehearsal {
	t.Helper()

	text := pair{"template", "metal", "", "reserved"}.stack()
	r := rehearse(t, stackFile(t, text))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	return r
}

// machine is a VM as it runs.
func machine(t *testing.T, r *rehearsal.Rehearsal, name string) world.VMInfo {
	t.Helper()

	v, there := r.Lab.World().Snapshot().VM(name)
	require.True(t, there, name)

	info, err := r.Lab.World().VM(v.Host, v.ID)
	require.NoError(t, err)

	return info
}

const restartedWorker = "pair-worker-1"

// TestRestartedVM: the provider looks at a VM while Proxmox VE restarts it, and notes that it is off. That is no reason
// for the next update to start what runs. Nor is a VM lost that others lock or change during an update.
func TestRestartedVM(t *testing.T) {
	t.Parallel()

	r := restartable(t)

	set(t, r.Stack, "pools.worker.memoryMiB", "6144")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.True(t, machine(t, r, restartedWorker).Running)
	requireSettled(t, r.Stack)

	before := machine(t, r, restartedWorker).PID

	set(t, r.Stack, "pools.worker.tags[0]", "fast")
	up(t, r.Stack)
	assert.Equal(t, before, machine(t, r, restartedWorker).PID, "it runs on")
	requireNoChange(t, r.Stack)

	set(t, r.Stack, "pools.worker.memoryMiB", "5120")
	up(t, r.Stack)
	assert.EqualValues(t, 5120<<20, machine(t, r, restartedWorker).Memory)
	requireNoChange(t, r.Stack)

	// While an update is about to change the VM, an operator takes a snapshot of it, and then changes it by hand.
	v := machine(t, r, restartedWorker)

	meanwhile := func(do func() error) {
		r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Proxmox, Kind: journal.Interfere,
			Call:   regexp.MustCompile(fmt.Sprintf(`^(POST|PUT) .*/qemu/%d/config$`, v.ID)),
			Before: func(journal.Entry) { assert.NoError(t, do()) },
		})
	}

	meanwhile(func() error { return r.Lab.World().SetLock(v.ID, "snapshot") })
	set(t, r.Stack, "pools.worker.memoryMiB", "4096")
	assert.Contains(t, failUp(t, r.Stack), "VM is locked (snapshot)")
	assert.Equal(t, v.PID, machine(t, r, restartedWorker).PID, "it runs on as it was")
	require.NoError(t, r.Lab.World().SetLock(v.ID, ""))

	set(t, r.Stack, "pools.worker.memoryMiB", "7168")
	meanwhile(func() error {
		return r.Lab.World().Update(administrator, v.Host, v.ID, world.UpdateRequest{
			Conf: map[string]string{"memory": "2048", "description": "do not touch"},
		})
	})
	upRefresh(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.EqualValues(t, 7168<<20, machine(t, r, restartedWorker).Memory)
	requireNoChange(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, restartedWorker)["description"], "do not touch", "it is no setting of the stack's")
}

// TestGrownDisk: a disk grows while the VM runs, and nothing else of the VM is touched.
func TestGrownDisk(t *testing.T) {
	t.Parallel()

	r := restartable(t)
	before, disk := machine(t, r, restartedWorker), vmConfig(t, r, restartedWorker)["scsi0"].(string)
	sent := len(r.Lab.Journal().Entries())

	set(t, r.Stack, "pools.worker.diskGiB", "50")

	preview, err := r.Stack.Preview(t.Context())
	require.NoError(t, err)
	assert.Contains(t, preview.StdOut, "disk scsi0 grows from 40 to 50 GiB; the VM runs on")

	up(t, r.Stack)

	assert.Equal(t, strings.Replace(disk, "size=40G", "size=50G", 1), vmConfig(t, r, restartedWorker)["scsi0"])
	assert.Equal(t, before.PID, machine(t, r, restartedWorker).PID)

	for _, e := range r.Lab.Journal().Entries()[sent:] {
		assert.NotContains(t, e.Call, "/status/reboot")
	}

	requireNoChange(t, r.Stack)

	// The state has learned of it.
	up(t, r.Stack)
	requireNoChange(t, r.Stack)

	// A later change of the VM is no change of its disk.
	set(t, r.Stack, "pools.worker.tags[0]", "fast")
	assert.NotContains(t, upResult(t, r.Stack).StdOut, "the VM of pair-worker-1 restarts")
	requireNoChange(t, r.Stack)

	set(t, r.Stack, "pools.worker.diskGiB", "55")
	up(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, restartedWorker)["scsi0"], "size=55G")
	assert.Equal(t, before.PID, machine(t, r, restartedWorker).PID)
	requireNoChange(t, r.Stack)
}

// TestFailedRestart: a VM that does not start after a change fails the update that restarted it, with the reason.
func TestFailedRestart(t *testing.T) {
	t.Parallel()

	r := restartable(t)

	set(t, r.Stack, "pools.worker.cores", "1024")
	assert.Contains(t, failUp(t, r.Stack), "pools.worker.cores: must be at most")

	set(t, r.Stack, "pools.worker.cores", "4")

	// What an operator has added waits for a restart, and cannot be.
	v := machine(t, r, restartedWorker)
	root := world.Caller{ID: "root@pam"}
	require.NoError(t, r.Lab.World().Update(root, v.Host, v.ID,
		world.UpdateRequest{Conf: map[string]string{"hostpci0": "mapping=gone"}}))

	said := failUp(t, r.Stack)
	assert.Contains(t, said, "settings of VM")
	assert.Contains(t, said, "does not start")
	assert.Contains(t, said, "PCI device mapping not found for 'gone'")
	assert.False(t, machine(t, r, restartedWorker).Running)

	require.NoError(t, r.Lab.World().Update(root, v.Host, v.ID, world.UpdateRequest{Delete: []string{"hostpci0"}}))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, 4, machine(t, r, restartedWorker).CPUs)
	requireNoChange(t, r.Stack)
}

// TestHungTask: a task of the program's that does not end fails the update after lifecycle.taskTimeout, here the least
// that is allowed. The message names the task, and the update goes on once an operator has stopped it.
func TestHungTask(t *testing.T) {
	t.Parallel()

	r := restartable(t)
	v := machine(t, r, restartedWorker)

	set(t, r.Stack, "lifecycle.taskTimeout", "4m")
	set(t, r.Stack, "pools.worker.diskGiB", "50")
	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`^PUT .*/resize$`), Kind: journal.HangTask,
	})

	assert.Contains(t, failUp(t, r.Stack), fmt.Sprintf("Proxmox VE on host %s: the task of "+
		"PUT /nodes/%s/qemu/%d/resize still runs: gave up after 4m0s (lifecycle.taskTimeout)", v.Host, v.Host, v.ID))

	running := func() []world.TaskInfo {
		return slices.DeleteFunc(r.Lab.World().Tasks(v.Host), func(task world.TaskInfo) bool { return !task.End.IsZero() })
	}

	hung := running()
	require.Len(t, hung, 1)
	require.NoError(t, r.Lab.World().StopTask(v.Host, hung[0].UPID))
	require.Eventually(t, func() bool { return len(running()) == 0 }, wait, 50*time.Millisecond)

	up(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, restartedWorker)["scsi0"], "size=50G")
	assert.Equal(t, v.PID, machine(t, r, restartedWorker).PID, "it runs on")
	requireNoChange(t, r.Stack)
}

// TestPendingChange: an update failed before it restarted a VM, and a refresh has the state say that all is done. The
// next update restarts it, in its turn, as the preview says.
func TestPendingChange(t *testing.T) {
	t.Parallel()

	r := restartable(t)

	r.Lab.Journal().Plant(journal.Fault{
		Face: journal.Proxmox, Call: regexp.MustCompile(`^POST .*/status/reboot$`), Kind: journal.Refuse,
		Message: "VM is locked (backup)",
	})
	set(t, r.Stack, "pools.worker.cores", "4")
	failUp(t, r.Stack)

	_, err := r.Stack.Refresh(t.Context())
	require.NoError(t, err)

	preview, err := r.Stack.Preview(t.Context())
	require.NoError(t, err)
	assert.Contains(t, preview.StdOut, "cores, since an earlier update")

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, 4, machine(t, r, restartedWorker).CPUs)
	requireNoChange(t, r.Stack)
}

// TestRefusedChange: an update that Proxmox VE has refused is not taken for done.
func TestRefusedChange(t *testing.T) {
	t.Parallel()

	r := restartable(t)

	refuse := func(key, value string) string {
		r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Proxmox, Call: regexp.MustCompile(`^(PUT|POST) .*/config$`), Kind: journal.Refuse,
			Message: "VM is locked (backup)",
		})
		set(t, r.Stack, "pools.worker."+key, value)
		failUp(t, r.Stack)

		return failUp(t, r.Stack)
	}

	said := refuse("tags[0]", "fast")
	assert.Contains(t, said, "is not as the state says: tags is ")
	assert.Contains(t, said, "because an earlier update failed. Run 'pulumi up --refresh', which detects this")
	upRefresh(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, restartedWorker)["tags"], "fast")
	requireNoChange(t, r.Stack)

	said = refuse("serial", "true")
	assert.Contains(t, said, `is not as the state says: serial0 is "" instead of "socket", because an earlier update failed`)
	upRefresh(t, r.Stack)
	assert.Equal(t, "socket", vmConfig(t, r, restartedWorker)["serial0"])
	requireNoChange(t, r.Stack)

	said = refuse("extraDisks[0].sizeGiB", "8")
	assert.Contains(t, said, "does not have disk scsi1, which the state has, because an earlier update failed")
	command := regexp.MustCompile(`Create it there with 'qm set (\d+) --(\w+) (\S+)', then run`).FindStringSubmatch(said)
	require.Len(t, command, 4, said)

	v, _ := r.Lab.World().Snapshot().VM(restartedWorker)
	require.Equal(t, strconv.Itoa(v.ID), command[1])
	require.NoError(t, r.Lab.World().Update(operator(r), v.Host, v.ID,
		world.UpdateRequest{Conf: map[string]string{command[2]: command[3]}}))
	up(t, r.Stack)
	assert.Contains(t, vmConfig(t, r, restartedWorker)["scsi1"], "size=8G")
	requireNoChange(t, r.Stack)
	upRefresh(t, r.Stack)
	requireNoChange(t, r.Stack)
}

// TestFailedUpdateEndsItsTurn: with a cluster that others look after, VMs are restarted in turns, too. One
// whose update fails gives its turn back.
func TestFailedUpdateEndsItsTurn(t *testing.T) {
	t.Parallel()

	text := pair{"template", "metal", "", "reserved"}.stack()
	text = strings.Replace(text, "    name: pair\n", "    name: pair\n    bootstrap: external\n", 1)
	text = strings.Replace(text, ", kubernetes: v1.34.2", "", 1)
	r := rehearse(t, stackFile(t, text))
	up(t, r.Stack)

	for call, memory := range map[string]string{`^(PUT|POST) .*/config$`: "6144", `^POST .*/status/reboot$`: "7168"} {
		r.Lab.Journal().Plant(journal.Fault{
			Face: journal.Proxmox, Call: regexp.MustCompile(call), Kind: journal.Refuse,
			Message: "VM is locked (backup)",
		})
		set(t, r.Stack, "pools.worker.memoryMiB", memory)
		set(t, r.Stack, "pools.control.memoryMiB", memory)

		said := failUp(t, r.Stack)
		// The engine may end before it begins with the other VM.
		if strings.Contains(said, "pair-control-1-vm updating") && strings.Contains(said, "pair-worker-1-vm updating") {
			assert.Contains(t, said, "not started: pair-")
		}

		assert.NotContains(t, said, "gave up after")

		_, err := r.Stack.Refresh(t.Context())
		require.NoError(t, err)
		up(t, r.Stack)
		assert.True(t, machine(t, r, restartedWorker).Running)
	}
}
