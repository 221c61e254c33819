package removal

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/components/rollout/talos/talostest"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosapi"
)

// TestAbandonQuorum: control planes that are not reached may have their quorum. Only VMs that are off are known to be
// of none.
func TestAbandonQuorum(t *testing.T) {
	l := leavingNode{Target: talosapi.Target{Name: "c-1", Address: "127.0.99.1"}, role: spec.RoleControlPlane}

	for name, c := range map[string]struct {
		off  []int
		want string
	}{
		"none is reached": {nil, "etcd does not answer, and whether it needs c-1 is not known: c-1, c-2, c-3 may go on with it"},
		"one is off":      {[]int{403}, "etcd does not answer, and whether it needs c-1 is not known: c-1, c-2 may go on with it"},
		"two are off":     {[]int{402, 403}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := New(talostest.Unreachable(c.off...), nil).abandonQuorum(t.Context(), l)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "c-1 is not removed: "+c.want)
			}
		})
	}

	t.Run("interrupted", func(t *testing.T) {
		cluster := talostest.Unreachable(401, 402, 403)
		cluster.Plan.SettleTimeout = time.Minute

		ctx, cancel := context.WithCancel(t.Context())
		cancel()

		require.Error(t, New(cluster, nil).abandonQuorum(ctx, l))
	})
}
