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
	for name, c := range map[string]struct {
		off  []int
		want string
	}{
		"none is reached": {nil, "etcd does not answer, and whether it needs c-1 is not known: c-1, c-2, c-3 may go on with it"},
		"one is off":      {[]int{403}, "etcd does not answer, and whether it needs c-1 is not known: c-1, c-2 may go on with it"},
		"two are off":     {[]int{402, 403}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := talostest.Unreachable(c.off...)
			restarts := &Restarts{Changes: &Changes{Cluster: cluster}}
			err := restarts.checkUnreachable(t.Context(), nodeChange{
				node: cluster.Plan.ControlPlanes()[0], Target: talosapi.Target{Name: "c-1"},
			})

			if c.want == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "see that this machine reaches the control planes")
		})
	}
}
