package components

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
)

func silent(string) {}

func TestTurnsOneControlPlaneAndSomeWorkers(t *testing.T) {
	turns := newTurns(2)

	var (
		now, most [2]atomic.Int32
		all       sync.WaitGroup
	)

	for i := range 20 {
		kind, role := i%2, []plan.Role{plan.ControlPlane, plan.Worker}[i%2]

		all.Go(func() {
			end, err := turns.take(t.Context(), "n", role, time.Minute, silent)
			if !assert.NoError(t, err) {
				return
			}

			n := now[kind].Add(1)
			for m := most[kind].Load(); n > m && !most[kind].CompareAndSwap(m, n); m = most[kind].Load() {
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

func TestTurnsStopAtAFailure(t *testing.T) {
	turns := newTurns(1)

	end, err := turns.take(t.Context(), "a", plan.ControlPlane, time.Minute, silent)
	require.NoError(t, err)

	waits := make(chan error)
	go func() {
		_, err := turns.take(t.Context(), "b", plan.ControlPlane, time.Minute, silent)
		waits <- err
	}()

	require.NoError(t, turns.stopped())
	end(errors.New("no"))
	assert.EqualError(t, <-waits, "b: not begun: a failed")

	_, err = turns.take(t.Context(), "c", plan.Worker, time.Minute, silent)
	assert.EqualError(t, err, "c: not begun: a failed")
	assert.EqualError(t, turns.stopped(), "not begun: a failed")
}

func TestTurnsAreBounded(t *testing.T) {
	turns := newTurns(1)

	_, err := turns.take(t.Context(), "a", plan.Worker, time.Minute, silent)
	require.NoError(t, err)

	_, err = turns.take(t.Context(), "b", plan.Worker, time.Millisecond, silent)
	assert.EqualError(t, err, "b: gave up after 1ms, waiting for its turn")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))

	_, err = turns.take(ctx, "c", plan.Worker, time.Minute, silent)
	assert.EqualError(t, err, "c: interrupted while it waited for its turn: enough")
}

func TestTurnsWaitForThoseThatAreAway(t *testing.T) {
	turns := newTurns(1)

	asked := 0
	turns.leave("a", plan.ControlPlane, func(context.Context) (string, error) {
		asked++

		return []string{"a to come back", ""}[asked-1], nil
	})

	end, err := turns.take(t.Context(), "w", plan.Worker, time.Minute, silent)
	require.NoError(t, err, "workers do not wait for control planes")
	turns.leave("w", plan.Worker, func(context.Context) (string, error) { return "w to come back", nil })
	end(nil)
	assert.Equal(t, 0, asked)

	end, err = turns.take(t.Context(), "b", plan.ControlPlane, time.Minute, silent)
	require.NoError(t, err)
	assert.Equal(t, 2, asked)
	turns.leave("b", plan.ControlPlane, func(context.Context) (string, error) { return "b to come back", nil })
	end(nil)

	_, err = turns.take(t.Context(), "c", plan.ControlPlane, time.Millisecond, silent)
	assert.EqualError(t, err, "c: not begun: b is away: gave up after 1ms, waiting for b to come back")

	_, err = turns.take(t.Context(), "d", plan.ControlPlane, time.Minute, silent)
	assert.EqualError(t, err, "d: not begun: c failed")
}

func TestTurnsOfWorkersWaitForThoseThatAreAway(t *testing.T) {
	turns := newTurns(2)

	asked := 0
	turns.leave("a", plan.Worker, func(context.Context) (string, error) {
		asked++

		return []string{"a to come back", ""}[asked-1], nil
	})

	for range 2 {
		_, err := turns.take(t.Context(), "b", plan.Worker, time.Minute, silent)
		require.NoError(t, err)
		assert.Equal(t, 2, asked, "who is back is not asked again")
	}

	turns = newTurns(2)
	turns.leave("a", plan.Worker, func(context.Context) (string, error) { return "a to come back", nil })

	_, err := turns.take(t.Context(), "b", plan.Worker, time.Millisecond, silent)
	assert.EqualError(t, err, "b: not begun: a is away: gave up after 1ms, waiting for a to come back")
}
