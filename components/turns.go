package components

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/wait"
)

// turns are whose turn it is to be taken down, for whatever reason: one control plane, or so many workers, whose pods a control
// plane moves. After a first failure nobody gets a turn any more in this run.
type turns struct {
	workers int

	mu sync.Mutex
	// busy are those who are being taken down, next the control planes that wait for it.
	busy map[plan.Role]int
	next int
	// failed is the first whose turn has failed.
	failed string
	// away are nodes that are being made anew, in the order in which they went.
	away []absent
	// moved is closed when any of this changes.
	moved chan struct{}
}

// absent is a node that is away until nothing is missing any more.
type absent struct {
	name    string
	role    plan.Role
	missing func(context.Context) (waitingFor string, err error)
}

func newTurns(workers int) *turns {
	return &turns{workers: workers, busy: map[plan.Role]int{}, moved: make(chan struct{})}
}

// turnBound is the longest time that a node may be away in its turn: until it is empty, the provider has restarted its VM and heard of
// its guest agent, or it has been upgraded, and it does its work again.
func turnBound(p *plan.Plan) time.Duration {
	return p.DrainTimeout + 3*p.UpgradeTimeout + 2*p.ReadyTimeout + p.AgentTimeout
}

// inLine waits for a node's turn, and before that for the canary of its pool, if it is a worker and there are canaries.
func (t *turns) inLine(ctx context.Context, c *canaries, n plan.Node, bound time.Duration, say wait.Say) (end func(error), err error) {
	done := func() {}

	if c != nil && n.Role != plan.ControlPlane {
		if done, err = c.enter(ctx, n.Pool, bound); err != nil {
			return nil, fmt.Errorf("%s: %w", n.Name, err)
		}
	}

	ended, err := t.take(ctx, n.Name, n.Role, bound, say)
	if err != nil {
		done()

		return nil, err
	}

	return func(err error) {
		ended(err)
		done()
	}, nil
}

// take waits for a node's turn, for at most the bound from the last time that somebody's turn has ended. Whoever gets one
// ends it with what came of it. Those that are away count, too.
func (t *turns) take(ctx context.Context, name string, role plan.Role, bound time.Duration, say wait.Say) (end func(error), err error) {
	if err := t.queue(ctx, name, role, bound, say); err != nil {
		return nil, err
	}

	end = func(err error) {
		t.mu.Lock()
		defer t.mu.Unlock()

		t.busy[role]--

		if err != nil && t.failed == "" {
			t.failed = name
		}

		t.tell()
	}

	if err := t.back(ctx, role, bound, say); err != nil {
		end(err)

		return nil, fmt.Errorf("%s: not begun: %w", name, err)
	}

	return end, nil
}

func (t *turns) queue(ctx context.Context, name string, role plan.Role, bound time.Duration, say wait.Say) error {
	if role == plan.ControlPlane {
		t.mu.Lock()
		t.next++
		t.mu.Unlock()

		defer func() {
			t.mu.Lock()
			defer t.mu.Unlock()

			t.next--
			t.tell()
		}()
	}

	for said := false; ; said = true {
		t.mu.Lock()

		if t.failed != "" {
			defer t.mu.Unlock()

			return fmt.Errorf("%s: not begun: %s failed", name, t.failed)
		}

		if t.free(role) {
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

// free says whether one more may go. The turns are locked.
func (t *turns) free(role plan.Role) bool {
	if role == plan.ControlPlane {
		return t.busy[plan.ControlPlane]+t.busy[plan.Worker] == 0
	}

	return t.busy[plan.ControlPlane]+t.next == 0 && t.busy[plan.Worker] < t.workers
}

// leave notes that a node is away until it has come back, which the question tells.
func (t *turns) leave(name string, role plan.Role, missing func(context.Context) (waitingFor string, err error)) {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.away = append(t.away, absent{name, role, missing})
}

// back waits until not too many of a role are away beside those whose turn it is.
func (t *turns) back(ctx context.Context, role plan.Role, bound time.Duration, say wait.Say) error {
	for {
		t.mu.Lock()

		may := 0
		if role == plan.Worker {
			may = t.workers - t.busy[role]
		}

		away := slices.DeleteFunc(slices.Clone(t.away), func(a absent) bool { return a.role != role })
		t.mu.Unlock()

		if len(away) <= may {
			return nil
		}

		if err := wait.Until(ctx, bound, say, away[0].missing); err != nil {
			return fmt.Errorf("%s is away: %w", away[0].name, err)
		}

		t.mu.Lock()
		t.away = slices.DeleteFunc(t.away, func(a absent) bool { return a.name == away[0].name })
		t.mu.Unlock()
	}
}

// allBack waits until nobody is away any more.
func (t *turns) allBack(ctx context.Context, bound time.Duration, say wait.Say) error {
	t.mu.Lock()
	away := t.away
	t.away = nil
	t.mu.Unlock()

	for _, a := range away {
		if err := wait.Until(ctx, bound, say, a.missing); err != nil {
			return fmt.Errorf("%s was made anew, and is not back: %w", a.name, err)
		}
	}

	return nil
}

// stop notes a failure outside of any turn.
func (t *turns) stop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.failed == "" {
		t.failed = name
	}

	t.tell()
}

// failure is for whom nobody gets a turn any more; empty while anybody does.
func (t *turns) failure() string {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.failed
}

// stopped is why nobody gets a turn any more; nil while anybody does.
func (t *turns) stopped() error {
	if name := t.failure(); name != "" {
		return fmt.Errorf("not begun: %s failed", name)
	}

	return nil
}

// tell wakes those that wait.
func (t *turns) tell() {
	close(t.moved)
	t.moved = make(chan struct{})
}

// canaries let one worker of a pool go before the others.
type canaries struct {
	mu    sync.Mutex
	first map[string]chan struct{} // by pool: closed when its canary is done
}

// newCanaries are those of one kind of change; nil where none go first.
func newCanaries(p *plan.Plan) *canaries {
	if !p.Canary {
		return nil
	}

	return &canaries{first: map[string]chan struct{}{}}
}

// enter makes the first of a pool its canary; the others wait until that is done, for at most the bound.
func (c *canaries) enter(ctx context.Context, pool string, bound time.Duration) (done func(), err error) {
	c.mu.Lock()
	first, there := c.first[pool]

	if !there {
		first = make(chan struct{})
		c.first[pool] = first
		c.mu.Unlock()

		return func() { close(first) }, nil
	}

	c.mu.Unlock()

	select {
	case <-first:
		return func() {}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(bound):
		return nil, fmt.Errorf("gave up after %s, waiting for the first node of pool %s", bound, pool)
	}
}
