package world_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/world"
)

func TestWhenAGuestAgentAnswers(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100)

	asked := func(want string) {
		t.Helper()

		list, err := w.Interfaces("pve1", 100)
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, []machine.Interface{{Name: "lo"}}, list)
		} else {
			require.EqualError(t, err, want)
		}
	}

	power := func(call func(world.Caller, string, int) (string, error)) {
		t.Helper()
		upid, err := call(token, "pve1", 100)
		done(t, w, upid, err)
	}

	asked("No QEMU guest agent configured")

	require.NoError(t, w.Update(token, "pve1", 100, world.UpdateRequest{Conf: map[string]string{"agent": "enabled=0"}}))
	asked("VM 100 is not running")
	power(w.Start)
	asked("QEMU guest agent is not running")

	// The port comes with the next start, and not with a reset.
	require.NoError(t, w.Update(token, "pve1", 100,
		world.UpdateRequest{Conf: map[string]string{"agent": "enabled=1,type=virtio"}}))
	asked("QEMU guest agent is not running")
	power(w.Reset)
	asked("QEMU guest agent is not running")
	power(w.Stop)
	power(w.Start)
	asked("")

	w.SilenceAgent(100, true)
	asked("QEMU guest agent is not running")
	w.SilenceAgent(100, false)
	asked("")

	_, err := w.Interfaces("pve1", 101)
	require.EqualError(t, err, "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist")
}
