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

func TestTurnsWaitForAControlPlaneThatIsAway(t *testing.T) {
	turns := newTurns(1)

	asked := 0
	turns.leave("a", plan.ControlPlane, func(context.Context) (string, error) {
		asked++

		return []string{"a to come back", ""}[asked-1], nil
	})

	end, err := turns.take(t.Context(), "w", plan.Worker, time.Minute, silent)
	require.NoError(t, err, "workers do not wait")
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

// TestTurnsWaitForWorkersThatAreAway: those that are made anew count like those that are being taken down.
func TestTurnsWaitForWorkersThatAreAway(t *testing.T) {
	turns := newTurns(2)

	back := map[string]bool{}
	leave := func(name string) {
		turns.leave(name, plan.Worker, func(context.Context) (string, error) {
			if back[name] {
				return "", nil
			}

			return name + " to come back", nil
		})
	}

	leave("a")

	end, err := turns.take(t.Context(), "b", plan.Worker, time.Minute, silent)
	require.NoError(t, err, "two may be away")
	leave("b")
	end(nil)

	back["a"] = true
	end, err = turns.take(t.Context(), "c", plan.Worker, time.Minute, silent)
	require.NoError(t, err)
	end(nil)

	end, err = turns.take(t.Context(), "d", plan.ControlPlane, time.Minute, silent)
	require.NoError(t, err, "control planes do not wait for workers")
	end(nil)

	leave("c")
	require.EqualError(t, turns.allBack(t.Context(), time.Millisecond, silent), "b was made anew, and is not back: gave up after 1ms, waiting for b to come back")
	require.NoError(t, turns.allBack(t.Context(), time.Millisecond, silent))

	leave("e")
	leave("f")
	_, err = turns.take(t.Context(), "g", plan.Worker, time.Millisecond, silent)
	assert.EqualError(t, err, "g: not begun: e is away: gave up after 1ms, waiting for e to come back")
}

// TestTurnsKeepRolesApart: who takes pods off a worker asks a control plane, so neither goes while one of the other kind does, and
// a control plane that waits goes before workers do.
func TestTurnsKeepRolesApart(t *testing.T) {
	turns := newTurns(2)

	end, err := turns.take(t.Context(), "w1", plan.Worker, time.Minute, silent)
	require.NoError(t, err)

	waits := make(chan error)
	queued := make(chan struct{})

	go func() {
		ended, err := turns.take(t.Context(), "c", plan.ControlPlane, time.Minute, func(string) { close(queued) })
		if err == nil {
			ended(nil)
		}

		waits <- err
	}()

	<-queued

	_, err = turns.take(t.Context(), "w2", plan.Worker, time.Millisecond, silent)
	require.EqualError(t, err, "w2: gave up after 1ms, waiting for its turn")

	end(nil)
	require.NoError(t, <-waits)

	end, err = turns.take(t.Context(), "w2", plan.Worker, time.Minute, silent)
	require.NoError(t, err)
	end(nil)

	_, err = turns.take(t.Context(), "c", plan.ControlPlane, time.Minute, silent)
	require.NoError(t, err)

	_, err = turns.take(t.Context(), "w3", plan.Worker, time.Millisecond, silent)
	assert.EqualError(t, err, "w3: gave up after 1ms, waiting for its turn")
}
