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
	workers int

	mu sync.Mutex
	// admitted nodes are being taken down; waiting are the control planes that go before further workers.
	admitted map[spec.Role]int
	waiting  int
	// failed is the first node that has failed.
	failed string
	// replaced are nodes whose new machines are not known to have rejoined, in the order in which they left.
	replaced []replaced
	// changed is closed when any of this changes.
	changed chan struct{}
}

// replaced is a node that is unavailable until nothing is missing any more.
type replaced struct {
	name    string
	role    spec.Role
	missing func(context.Context) error
}

// NewLimiter returns a Limiter that admits so many workers at a time.
func NewLimiter(workers int) *Limiter {
	return &Limiter{workers: workers, admitted: map[spec.Role]int{}, changed: make(chan struct{})}
}

// Acquire waits until a node may be taken down, for at most the bound from the last time that another was done. The
// caller releases what it got with what came of it. Nodes that are being replaced count, too.
func (l *Limiter) Acquire(
	ctx context.Context, name string, role spec.Role, bound time.Duration, progress wait.Reporter,
) (release func(error), err error) {
	if err := l.queue(ctx, name, role, bound, progress); err != nil {
		return nil, err
	}

	release = func(err error) {
		l.mu.Lock()
		defer l.mu.Unlock()

		l.admitted[role]--

		if err != nil && l.failed == "" {
			l.failed = name
		}

		l.wake()
	}

	if err := l.waitForReplaced(ctx, role, bound, progress); err != nil {
		release(err)

		return nil, fmt.Errorf("%s: not started: %w", name, err)
	}

	return release, nil
}

func (l *Limiter) queue(
	ctx context.Context, name string, role spec.Role, bound time.Duration, progress wait.Reporter,
) error {
	if role == spec.RoleControlPlane {
		l.mu.Lock()
		l.waiting++
		l.mu.Unlock()

		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()

			l.waiting--
			l.wake()
		}()
	}

	for said := false; ; said = true {
		l.mu.Lock()

		if l.failed != "" {
			defer l.mu.Unlock()

			return fmt.Errorf("%s: not started: %s failed", name, l.failed)
		}

		if l.free(role) {
			defer l.mu.Unlock()

			l.admitted[role]++

			return nil
		}

		changed := l.changed
		l.mu.Unlock()

		if !said {
			progress(name + " waits for its turn")
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: interrupted while it waited for its turn: %w", name, context.Cause(ctx))
		case <-time.After(bound):
			return fmt.Errorf("%s: gave up after %s, waiting for its turn", name, bound)
		}
	}
}

// free says whether one more may go. The Limiter is locked.
func (l *Limiter) free(role spec.Role) bool {
	if role == spec.RoleControlPlane {
		return l.admitted[spec.RoleControlPlane]+l.admitted[spec.RoleWorker] == 0
	}

	return l.admitted[spec.RoleControlPlane]+l.waiting == 0 && l.admitted[spec.RoleWorker] < l.workers
}

// Replace notes that a node is unavailable until its new machine has rejoined, which missing tells.
func (l *Limiter) Replace(name string, role spec.Role, missing func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.replaced = append(l.replaced, replaced{name, role, missing})
}

// waitForReplaced waits until not too many of a role are being replaced besides those that are admitted.
func (l *Limiter) waitForReplaced(
	ctx context.Context, role spec.Role, bound time.Duration, progress wait.Reporter,
) error {
	for {
		l.mu.Lock()

		may := 0
		if role == spec.RoleWorker {
			may = l.workers - l.admitted[role]
		}

		away := slices.DeleteFunc(slices.Clone(l.replaced), func(r replaced) bool { return r.role != role })
		l.mu.Unlock()

		if len(away) <= may {
			return nil
		}

		if err := wait.Until(ctx, bound, progress, away[0].missing); err != nil {
			return fmt.Errorf("%s is unavailable: %w", away[0].name, err)
		}

		l.mu.Lock()
		l.replaced = slices.DeleteFunc(l.replaced, func(r replaced) bool { return r.name == away[0].name })
		l.mu.Unlock()
	}
}

// WaitReplaced waits until all nodes that were replaced have rejoined.
func (l *Limiter) WaitReplaced(ctx context.Context, bound time.Duration, progress wait.Reporter) error {
	l.mu.Lock()
	all := l.replaced
	l.replaced = nil
	l.mu.Unlock()

	for _, r := range all {
		if err := wait.Until(ctx, bound, progress, r.missing); err != nil {
			return fmt.Errorf("%s was replaced, and has not rejoined: %w", r.name, err)
		}
	}

	return nil
}

// Stop notes a failure of a node that was not admitted.
func (l *Limiter) Stop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.failed == "" {
		l.failed = name
	}

	l.wake()
}

// Failed is the node whose failure keeps all others from being admitted; empty: none has failed.
func (l *Limiter) Failed() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.failed
}

// Stopped is why no node is admitted any more; nil while nodes are.
func (l *Limiter) Stopped() error {
	if name := l.Failed(); name != "" {
		return fmt.Errorf("not started: %s failed", name)
	}

	return nil
}

// wake wakes those that wait. The Limiter is locked.
func (l *Limiter) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Canaries let one worker of a pool go before the others.
type Canaries struct {
	mu    sync.Mutex
	first map[string]chan struct{} // by pool: closed when its canary is done
}

// NewCanaries returns those of one kind of change.
func NewCanaries() *Canaries { return &Canaries{first: map[string]chan struct{}{}} }

// Enter makes the first worker of a pool its canary; the others wait until that is done, for at most the bound, and
// follow it. Control planes follow none, nor does anything without canaries.
func (c *Canaries) Enter(
	ctx context.Context, n plan.Node, bound time.Duration,
) (done func(), follows bool, err error) {
	if c == nil || n.Role == spec.RoleControlPlane {
		return func() {}, false, nil
	}

	c.mu.Lock()
	first, there := c.first[n.Pool]

	if !there {
		first = make(chan struct{})
		c.first[n.Pool] = first
		c.mu.Unlock()

		return func() { close(first) }, false, nil
	}

	c.mu.Unlock()

	select {
	case <-first:
		return func() {}, true, nil
	case <-ctx.Done():
		return nil, true, context.Cause(ctx)
	case <-time.After(bound):
		return nil, true, fmt.Errorf("gave up after %s, waiting for the first node of pool %s", bound, n.Pool)
	}
}
