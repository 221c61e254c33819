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

	for name, c := range talostest.UnknownQuorum {
		t.Run(name, func(t *testing.T) {
			err := New(talostest.Unreachable(c.Off...), nil).abandonQuorum(t.Context(), l)
			if c.Why == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "c-1 is not removed: "+c.Why)
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
