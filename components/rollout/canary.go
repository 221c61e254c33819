package rollout

import (
	"context"
	"fmt"
	"sync"
	"time"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

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
