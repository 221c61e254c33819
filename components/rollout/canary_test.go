package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

func TestCanaries(t *testing.T) {
	c := NewCanaries()
	of := func(pool string) plan.Node { return plan.Node{Pool: pool, Role: spec.RoleWorker} }

	done, follows, err := c.WaitTurn(t.Context(), of("a"), time.Minute)
	require.NoError(t, err)
	assert.False(t, follows)

	_, _, err = c.WaitTurn(t.Context(), of("a"), time.Millisecond)
	require.EqualError(t, err, "gave up after 1ms, waiting for the first node of pool a")

	other, _, err := c.WaitTurn(t.Context(), of("b"), time.Millisecond)
	require.NoError(t, err, "each pool has its own")
	other()
	done()

	for range 2 {
		next, follows, err := c.WaitTurn(t.Context(), of("a"), time.Millisecond)
		require.NoError(t, err)
		assert.True(t, follows)
		next()
	}
}
