package rollout

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

func silent(string) {}

func TestLimiterAdmitsOneControlPlaneAndSomeWorkers(t *testing.T) {
	limiter := NewLimiter(2)

	var (
		now, most [2]atomic.Int32
		all       sync.WaitGroup
	)

	for i := range 20 {
		kind, role := i%2, []spec.Role{spec.RoleControlPlane, spec.RoleWorker}[i%2]

		all.Go(func() {
			end, err := limiter.Acquire(t.Context(), "n", role, time.Minute, silent)
			if !assert.NoError(t, err) {
				return
			}

			n := now[kind].Add(1)
			for m := most[kind].Load(); n > m && !most[kind].CompareAndSwap(m, n); m = most[kind].Load() {
				continue
			}

			time.Sleep(time.Millisecond)
			now[kind].Add(-1)
			end(nil)
		})
	}

	all.Wait()
	assert.Equal(t, int32(1), most[0].Load())
	assert.Equal(t, int32(2), most[1].Load())
}

func TestLimiterStopsAtAFailure(t *testing.T) {
	limiter := NewLimiter(1)

	end, err := limiter.Acquire(t.Context(), "a", spec.RoleControlPlane, time.Minute, silent)
	require.NoError(t, err)

	waits := make(chan error)
	go func() {
		_, err := limiter.Acquire(t.Context(), "b", spec.RoleControlPlane, time.Minute, silent)
		waits <- err
	}()

	require.NoError(t, limiter.CheckNoneFailed())
	end(errors.New("no"))
	assert.EqualError(t, <-waits, "b: not started: a failed")

	_, err = limiter.Acquire(t.Context(), "c", spec.RoleWorker, time.Minute, silent)
	assert.EqualError(t, err, "c: not started: a failed")
	assert.EqualError(t, limiter.CheckNoneFailed(), "not started: a failed")
}

func TestLimiterIsBounded(t *testing.T) {
	limiter := NewLimiter(1)

	_, err := limiter.Acquire(t.Context(), "a", spec.RoleWorker, time.Minute, silent)
	require.NoError(t, err)

	_, err = limiter.Acquire(t.Context(), "b", spec.RoleWorker, time.Millisecond, silent)
	assert.EqualError(t, err, "b: gave up after 1ms, waiting for its turn")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))

	_, err = limiter.Acquire(ctx, "c", spec.RoleWorker, time.Minute, silent)
	assert.EqualError(t, err, "c: interrupted while it waited for its turn: enough")
}

func TestLimiterWaitsForAControlPlaneThatIsAway(t *testing.T) {
	limiter := NewLimiter(1)

	asked := 0
	limiter.AddReplaced("a", spec.RoleControlPlane, func(context.Context) error {
		asked++

		return []error{wait.For("a to come back"), nil}[asked-1]
	})

	end, err := limiter.Acquire(t.Context(), "w", spec.RoleWorker, time.Minute, silent)
	require.NoError(t, err, "workers do not wait")
	end(nil)
	assert.Equal(t, 0, asked)

	end, err = limiter.Acquire(t.Context(), "b", spec.RoleControlPlane, time.Minute, silent)
	require.NoError(t, err)
	assert.Equal(t, 2, asked)
	limiter.AddReplaced("b", spec.RoleControlPlane, func(context.Context) error { return wait.For("b to come back") })
	end(nil)

	_, err = limiter.Acquire(t.Context(), "c", spec.RoleControlPlane, time.Millisecond, silent)
	assert.EqualError(t, err, "c: not started: b is unavailable: gave up after 1ms, waiting for b to come back")

	_, err = limiter.Acquire(t.Context(), "d", spec.RoleControlPlane, time.Minute, silent)
	assert.EqualError(t, err, "d: not started: c failed")
}

// TestLimiterWaitsForWorkersThatAreAway: those that are recreated count like those that are being taken down.
func TestLimiterWaitsForWorkersThatAreAway(t *testing.T) {
	limiter := NewLimiter(2)

	back := map[string]bool{}
	leave := func(name string) {
		limiter.AddReplaced(name, spec.RoleWorker, func(context.Context) error {
			if back[name] {
				return nil
			}

			return wait.For("%s to come back", name)
		})
	}

	leave("a")

	end, err := limiter.Acquire(t.Context(), "b", spec.RoleWorker, time.Minute, silent)
	require.NoError(t, err, "two may be away")
	leave("b")
	end(nil)

	back["a"] = true
	end, err = limiter.Acquire(t.Context(), "c", spec.RoleWorker, time.Minute, silent)
	require.NoError(t, err)
	end(nil)

	end, err = limiter.Acquire(t.Context(), "d", spec.RoleControlPlane, time.Minute, silent)
	require.NoError(t, err, "control planes do not wait for workers")
	end(nil)

	leave("c")
	require.EqualError(t, limiter.WaitReplaced(t.Context(), time.Millisecond, silent),
		"b was replaced, and has not rejoined: gave up after 1ms, waiting for b to come back")
	require.NoError(t, limiter.WaitReplaced(t.Context(), time.Millisecond, silent))

	leave("e")
	leave("f")
	_, err = limiter.Acquire(t.Context(), "g", spec.RoleWorker, time.Millisecond, silent)
	assert.EqualError(t, err, "g: not started: e is unavailable: gave up after 1ms, waiting for e to come back")
}

// TestLimiterKeepsRolesApart: who takes pods off a worker asks a control plane, so neither goes while one of the other
// kind does, and a control plane that waits goes before workers do.
func TestLimiterKeepsRolesApart(t *testing.T) {
	limiter := NewLimiter(2)

	end, err := limiter.Acquire(t.Context(), "w1", spec.RoleWorker, time.Minute, silent)
	require.NoError(t, err)

	waits := make(chan error)
	queued := make(chan struct{})

	go func() {
		ended, err := limiter.Acquire(t.Context(), "c", spec.RoleControlPlane, time.Minute, func(string) { close(queued) })
		if err == nil {
			ended(nil)
		}

		waits <- err
	}()

	<-queued

	_, err = limiter.Acquire(t.Context(), "w2", spec.RoleWorker, time.Millisecond, silent)
	require.EqualError(t, err, "w2: gave up after 1ms, waiting for its turn")

	end(nil)
	require.NoError(t, <-waits)

	end, err = limiter.Acquire(t.Context(), "w2", spec.RoleWorker, time.Minute, silent)
	require.NoError(t, err)
	end(nil)

	_, err = limiter.Acquire(t.Context(), "c", spec.RoleControlPlane, time.Minute, silent)
	require.NoError(t, err)

	_, err = limiter.Acquire(t.Context(), "w3", spec.RoleWorker, time.Millisecond, silent)
	assert.EqualError(t, err, "w3: gave up after 1ms, waiting for its turn")
}

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
