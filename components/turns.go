package components

import (
	"context"
	"fmt"
	"sync"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// turns are whose turn it is to be taken down, for whatever reason: one control plane, and so many workers. After a first
// failure nobody gets a turn any more in this run.
type turns struct {
	workers int

	mu sync.Mutex
	// busy are those who are being taken down.
	busy map[plan.Role]int
	// failed is the first whose turn has failed, and why.
	failed error
	// away are those that are being made anew, each with what it is still waited for.
	away map[plan.Role]map[string]missing
	// moved is closed when any of this changes.
	moved chan struct{}
}

// missing says what a node lacks that is made anew; nothing when it is back.
type missing func(context.Context) (waitingFor string, err error)

func newTurns(workers int) *turns {
	return &turns{
		workers: workers, busy: map[plan.Role]int{}, moved: make(chan struct{}),
		away: map[plan.Role]map[string]missing{plan.ControlPlane: {}, plan.Worker: {}},
	}
}

// take waits for a node's turn, for at most the bound from the last time that somebody's turn has ended. Whoever gets one
// ends it with what came of it. Those of its role that are being made anew have to be back.
func (t *turns) take(ctx context.Context, name string, role plan.Role, bound time.Duration, say wait.Say) (end func(error), err error) {
	if err := t.queue(ctx, name, role, bound, say); err != nil {
		return nil, err
	}

	end = func(err error) {
		t.mu.Lock()
		defer t.mu.Unlock()

		t.busy[role]--

		if err != nil && t.failed == nil {
			t.failed = fmt.Errorf("not begun: %s failed", name)
		}

		t.tell()
	}

	if err := t.back(ctx, role, bound, say); err != nil {
		end(err)

		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return end, nil
}

func (t *turns) queue(ctx context.Context, name string, role plan.Role, bound time.Duration, say wait.Say) error {
	limit := t.workers
	if role == plan.ControlPlane {
		limit = 1
	}

	for said := false; ; said = true {
		t.mu.Lock()

		if t.failed != nil {
			defer t.mu.Unlock()

			return fmt.Errorf("%s: %w", name, t.failed)
		}

		if t.busy[role] < limit {
			defer t.mu.Unlock()

			t.busy[role]++

			return nil
		}

		moved := t.moved
		t.mu.Unlock()

		if !said {
			say(name + " waits for its turn")
		}

		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("%s: interrupted while it waited for its turn: %w", name, context.Cause(ctx))
		case <-time.After(bound):
			return fmt.Errorf("%s: gave up after %s, waiting for its turn", name, bound)
		}
	}
}

// leave notes that a node is made anew, and away until it has come back, which the question tells.
func (t *turns) leave(name string, role plan.Role, m missing) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.away[role][name] = m
}

// back waits for those that are away.
func (t *turns) back(ctx context.Context, role plan.Role, bound time.Duration, say wait.Say) error {
	for {
		name, m := t.someAway(role)
		if m == nil {
			return nil
		}

		if err := wait.Until(ctx, bound, say, m); err != nil {
			return fmt.Errorf("not begun: %s is away: %w", name, err)
		}

		t.mu.Lock()
		delete(t.away[role], name)
		t.mu.Unlock()
	}
}

// someAway is one that is away; nil: nobody is.
func (t *turns) someAway(role plan.Role) (string, missing) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for name, m := range t.away[role] {
		return name, m
	}

	return "", nil
}

// stop notes a failure outside of any turn.
func (t *turns) stop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.failed == nil {
		t.failed = fmt.Errorf("not begun: %s failed", name)
	}

	t.tell()
}

// stopped is why nobody gets a turn any more; nil while anybody does.
func (t *turns) stopped() error {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.failed
}

// tell wakes those that wait.
func (t *turns) tell() {
	close(t.moved)
	t.moved = make(chan struct{})
}
