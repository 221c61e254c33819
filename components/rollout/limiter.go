package rollout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/wait"
)

// Limiter admits one control plane, or so many workers, to be taken down at a time, for whatever reason: never both,
// for control planes move the pods of workers. After the first failure it admits no node any more in this run.
type Limiter struct {
	maxWorkers int

	mu sync.Mutex
	// admitted counts the nodes that are being taken down.
	admitted map[spec.Role]int
	// waitingControlPlanes go before further workers.
	waitingControlPlanes int
	// failed is the first node that has failed.
	failed string
	// replaced are nodes whose new machines are not known to have rejoined, in the order in which they left.
	replaced []replacedNode
	// joining are nodes that were set up in this run, and may not have joined yet.
	joining []string
	// changed is closed when any of this changes.
	changed chan struct{}
}

// replacedNode is a node that is unavailable until it has rejoined.
type replacedNode struct {
	name          string
	role          spec.Role
	checkRejoined func(context.Context) error
}

// NewLimiter returns a Limiter that admits so many workers at a time.
func NewLimiter(maxWorkers int) *Limiter {
	return &Limiter{maxWorkers: maxWorkers, admitted: map[spec.Role]int{}, changed: make(chan struct{})}
}

// Acquire waits until a node may be taken down, for at most the timeout from the last time that another was done. The
// caller releases what it got with what came of it. Nodes that are being replaced count, too.
func (l *Limiter) Acquire(
	ctx context.Context, name string, role spec.Role, timeout time.Duration, progress wait.Reporter,
) (release func(error), err error) {
	if err := l.waitForTurn(ctx, name, role, timeout, progress); err != nil {
		return nil, err
	}

	release = func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()

		l.admitted[role]--

		if err != nil && l.failed == "" {
			l.failed = name
		}

		l.wakeWaiting()
	}

	if err := l.waitUntilFewReplaced(ctx, role, timeout, progress); err != nil {
		release(err)

		return nil, fmt.Errorf("%s: not started: %w", name, err)
	}

	return release, nil
}

func (l *Limiter) waitForTurn(
	ctx context.Context, name string, role spec.Role, timeout time.Duration, progress wait.Reporter,
) error {
	if role == spec.RoleControlPlane {
		l.mu.Lock()
		l.waitingControlPlanes++
		l.mu.Unlock()

		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()

			l.waitingControlPlanes--
			l.wakeWaiting()
		}()
	}

	for reported := false; ; reported = true {
		l.mu.Lock()

		if l.failed != "" {
			defer l.mu.Unlock()

			return fmt.Errorf("%s: not started: %s failed", name, l.failed)
		}

		if l.admits(role) {
			defer l.mu.Unlock()

			l.admitted[role]++

			return nil
		}

		changed := l.changed
		l.mu.Unlock()

		if !reported {
			progress(name + " waits for its turn")
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: interrupted while it waited for its turn: %w", name, context.Cause(ctx))
		case <-time.After(timeout):
			return fmt.Errorf("%s: gave up after %s, waiting for its turn", name, timeout)
		}
	}
}

// admits says whether one more may go. The Limiter is locked.
func (l *Limiter) admits(role spec.Role) bool {
	if role == spec.RoleControlPlane {
		return l.admitted[spec.RoleControlPlane]+l.admitted[spec.RoleWorker] == 0
	}

	return l.admitted[spec.RoleControlPlane]+l.waitingControlPlanes == 0 && l.admitted[spec.RoleWorker] < l.maxWorkers
}

// AddReplaced notes that a node is unavailable until its new machine has rejoined.
func (l *Limiter) AddReplaced(name string, role spec.Role, checkRejoined func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.replaced = append(l.replaced, replacedNode{name, role, checkRejoined})
}

// AddJoining notes that a node was set up in this run.
func (l *Limiter) AddJoining(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.joining = append(l.joining, name)
}

// isJoining says whether a node was set up in this run.
func (l *Limiter) isJoining(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Contains(l.joining, name)
}

// waitUntilFewReplaced waits until not too many of a role are being replaced besides those that are admitted.
func (l *Limiter) waitUntilFewReplaced(
	ctx context.Context, role spec.Role, timeout time.Duration, progress wait.Reporter,
) error {
	for {
		l.mu.Lock()

		allowed := 0
		if role == spec.RoleWorker {
			allowed = l.maxWorkers - l.admitted[role]
		}

		unavailable := slices.DeleteFunc(slices.Clone(l.replaced), func(r replacedNode) bool { return r.role != role })
		l.mu.Unlock()

		if len(unavailable) <= allowed {
			return nil
		}

		if err := wait.Until(ctx, timeout, progress, unavailable[0].checkRejoined); err != nil {
			return fmt.Errorf("%s is unavailable: %w", unavailable[0].name, err)
		}

		l.mu.Lock()
		l.replaced = slices.DeleteFunc(l.replaced, func(r replacedNode) bool { return r.name == unavailable[0].name })
		l.mu.Unlock()
	}
}

// WaitReplaced waits until all nodes that were replaced have rejoined.
func (l *Limiter) WaitReplaced(ctx context.Context, timeout time.Duration, progress wait.Reporter) error {
	l.mu.Lock()
	replaced := l.replaced
	l.replaced = nil
	l.mu.Unlock()

	for _, r := range replaced {
		if err := wait.Until(ctx, timeout, progress, r.checkRejoined); err != nil {
			return fmt.Errorf("%s was replaced, and has not rejoined: %w", r.name, err)
		}
	}

	return nil
}

// Fail notes a failure of a node that was not admitted.
func (l *Limiter) Fail(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.failed == "" {
		l.failed = name
	}

	l.wakeWaiting()
}

// FailedNode is the node whose failure keeps all others from being admitted; empty: none has failed.
func (l *Limiter) FailedNode() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.failed
}

// CheckNoneFailed is why no node is admitted any more; nil while nodes are.
func (l *Limiter) CheckNoneFailed() error {
	if name := l.FailedNode(); name != "" {
		return fmt.Errorf("not started: %s failed", name)
	}

	return nil
}

// wakeWaiting wakes those that wait. The Limiter is locked.
func (l *Limiter) wakeWaiting() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Canaries let one worker of a pool go before the others.
type Canaries struct {
	mu         sync.Mutex
	canaryDone map[string]chan struct{} // by pool: closed when its canary is done
}

// NewCanaries returns those of one kind of change.
func NewCanaries() *Canaries { return &Canaries{canaryDone: map[string]chan struct{}{}} }

// WaitTurn makes the first worker of a pool its canary; the others wait until that is done, for at most the timeout,
// and follow it. Control planes follow none, nor does anything without canaries.
func (c *Canaries) WaitTurn(
	ctx context.Context, n plan.Node, timeout time.Duration,
) (done func(), follows bool, err error) {
	if c == nil || n.Role == spec.RoleControlPlane {
		return func() {}, false, nil
	}

	c.mu.Lock()
	canaryDone, there := c.canaryDone[n.Pool]

	if !there {
		canaryDone = make(chan struct{})
		c.canaryDone[n.Pool] = canaryDone
		c.mu.Unlock()

		return func() { close(canaryDone) }, false, nil
	}

	c.mu.Unlock()

	select {
	case <-canaryDone:
		return func() {}, true, nil
	case <-ctx.Done():
		return nil, true, context.Cause(ctx)
	case <-time.After(timeout):
		return nil, true, fmt.Errorf("gave up after %s, waiting for the first node of pool %s", timeout, n.Pool)
	}
}
