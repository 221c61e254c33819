package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
	"talos-proxmox/tests/rehearsal"
)

// TestMadeAgain takes machines away behind the program's back: a worker, and then the only control plane. What is made again
// is configured again, and a cluster that has lost its etcd is started anew.
func TestMadeAgain(t *testing.T) {
	t.Parallel()

	r := rehearse(t, "dev")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	t.Run("a worker that somebody deleted", func(t *testing.T) {
		remove(t, r, 501)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		up(t, r.Stack)
		require.NoError(t, r.WaitReady(t.Context(), wait))
		// Each time by the program, and then by the provider.
		assert.Len(t, calls(r, "k3s-dev-worker-1 /machine.MachineService/ApplyConfiguration"), 4)
		assert.Len(t, calls(r, "k3s-dev-control-1 /machine.MachineService/ApplyConfiguration"), 2, "the other node is left alone")
		requireNoChange(t, r.Stack)
	})

	t.Run("the only control plane", func(t *testing.T) {
		remove(t, r, 401)

		_, err := r.Stack.Refresh(t.Context(), optrefresh.ProgressStreams(newOutput(t)))
		require.NoError(t, err)

		up(t, r.Stack)
		assert.Len(t, calls(r, "/Bootstrap"), 2)

		for _, n := range r.Nodes() {
			if n.Role == "controlplane" {
				assert.Equal(t, "running", strings.TrimSuffix(n.State, ", ready"))
			}
		}

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
