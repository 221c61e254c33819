package changes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/rollout/talos/talostest"
	"talos-proxmox/components/talosapi"
)

// TestRestartOfUnreachable: control planes that are not reached may have their quorum. Only VMs that are off are known
// to be of none.
func TestRestartOfUnreachable(t *testing.T) {
	for name, c := range talostest.UnknownQuorum {
		t.Run(name, func(t *testing.T) {
			cluster := talostest.Unreachable(c.Off...)
			restarts := &Restarts{Changes: &Changes{Cluster: cluster}}
			err := restarts.checkUnreachable(t.Context(), nodeChange{
				node: cluster.Plan.ControlPlanes()[0], Target: talosapi.Target{Name: "c-1"},
			})

			if c.Why == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, c.Why)
			require.ErrorContains(t, err, "make sure that this machine reaches the control planes")
		})
	}
}
