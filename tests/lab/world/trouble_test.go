package world_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

// TestTrouble: what comes from outside lasts until it is taken away, and what takes it away brings all of it back.
func TestTrouble(t *testing.T) {
	w, _ := newWorld(t)

	w.Fill("tank", true)

	upid, err := w.Create(token, "pve1", world.CreateRequest{VMID: 401, Conf: map[string]string{"scsi0": "tank:1"}})
	require.Contains(t, ended(t, w, upid, err), "lvcreate 'tank/vm-401-disk-0' error:   Cannot create new thin volume, ")
	w.Fill("tank", false)

	upid, err = w.Create(token, "pve1",
		world.CreateRequest{VMID: 401, Conf: map[string]string{"scsi0": "tank:1", "onboot": "1"}})
	require.Equal(t, "OK", ended(t, w, upid, err))

	before := w.Permissions(token.ID)
	restore := w.RevokePrivilege(token.ID, "VM.Allocate")
	require.Error(t, w.Require(token, "/vms/401", "VM.Allocate"))
	require.NoError(t, w.Require(token, "/vms/401", "VM.Audit"))
	restore()
	require.Equal(t, before, w.Permissions(token.ID))

	restore = w.RevokeToken(token.ID)
	require.EqualError(t, w.VerifyToken(token.ID, "s"), "Authentication failed!")
	restore()
	require.NoError(t, w.VerifyToken(token.ID, "s"))

	upid, err = w.Start(token, "pve1", 401)
	require.Equal(t, "OK", ended(t, w, upid, err))
	require.NoError(t, w.CutPower("pve1"))
	require.Error(t, w.Reach("pve1"))
	require.NoError(t, w.RestorePower("pve1"))
	require.Eventually(t, func() bool {
		vm, err := w.VM("pve1", 401)

		return err == nil && vm.Running
	}, 5*time.Second, time.Millisecond, "it starts with its host")

	caller := token
	caller.Task = &world.TaskFault{Hang: time.Hour}
	upid, err = w.Stop(caller, "pve1", 401)
	require.NoError(t, err)
	require.NoError(t, w.StopTask("pve1", upid))
	require.Equal(t, "interrupted by signal", ended(t, w, upid, nil))
}
