package proxmoxvm

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"golang.org/x/sync/semaphore"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// Clones limits how many clones of one template are made at a time, and retries those that a lock has refused. A clone
// counts from before it is made until its VM has started.
type Clones struct {
	// Limit is how many; 0: any number.
	Limit int
	// Timeout is how long a lock is waited for.
	Timeout time.Duration
	// GracePeriod is how long another clone may take until its VM has started. No hook reports a clone that failed where
	// none is bound, as after lifecycle.teardown.
	GracePeriod time.Duration
	Proxmox     vmidentity.Finder
	Progress    wait.Reporter

	mu sync.Mutex
	// templates are the slots of each template, release gives back that of a VM, by the name of its resource.
	templates map[string]*semaphore.Weighted
	release   map[string]func()
	// ended are how many clones of each template have ended.
	ended map[string]int
	// locked is when a VM met a lock first.
	locked map[string]time.Time
}

// startTimeout is the provider's own, in seconds.
const startTimeout = 1800

// LongestClone is how long a clone may take from before it is made until its VM has started: to wait for a lock, the
// provider's own bounds for the copy and the start, and its wait for the guest agent.
func LongestClone(p *plan.Plan) time.Duration {
	return p.TaskTimeout + (vmidentity.CloneTimeout+startTimeout)*time.Second + p.AgentTimeout
}

// Begin runs before a VM is created, and waits until another clone of its template may be made.
func (c *Clones) Begin(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	template := templateOf(args.NewInputs)
	if c.Limit == 0 || template == "" {
		return nil
	}

	slots := c.slotsOf(template)

	if !slots.TryAcquire(1) {
		c.Progress(fmt.Sprintf("%s waits for other clones of template %s (image.template.parallelClones: %d)", args.Name,
			template, c.Limit))

		if err := c.acquire(ctx, slots, args.Name, template); err != nil {
			return err
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	c.release[args.Name] = func() {
		c.ended[template]++

		slots.Release(1)
	}

	return nil
}

// acquire waits for a slot for as long as other clones end.
func (c *Clones) acquire(ctx context.Context, slots *semaphore.Weighted, name, template string) error {
	endedNow := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()

		return c.ended[template]
	}

	for {
		before := endedNow()
		short, cancel := context.WithTimeout(ctx, c.GracePeriod)
		err := slots.Acquire(short, 1)

		cancel()

		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: interrupted while it waited for other clones of template %s: %w", name, template, ctx.Err())
		case endedNow() == before:
			return fmt.Errorf("%s was not created: none of the other clones of template %s has ended within %s, "+
				"the limit for one clone, so they have failed. Run 'pulumi up' again", name, template, c.GracePeriod)
		}
	}
}

// slotsOf a template are made when they are first asked for.
func (c *Clones) slotsOf(template string) *semaphore.Weighted {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.templates == nil {
		c.templates, c.release = map[string]*semaphore.Weighted{}, map[string]func(){}
		c.ended = map[string]int{}
	}

	if c.templates[template] == nil {
		c.templates[template] = semaphore.NewWeighted(int64(c.Limit))
	}

	return c.templates[template]
}

// End gives back what Begin took for the VM of a resource.
func (c *Clones) End(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if release := c.release[name]; release != nil {
		release()
	}

	delete(c.release, name)
}

// Failed runs after the creation of a VM has failed, and says whether to create it again: a lock refused the clone, of
// which nothing is there. The engine asks a hundred times at most.
func (c *Clones) Failed(ctx context.Context, args *pulumi.ErrorHookArgs) bool {
	again := c.waitForLock(ctx, args)
	if !again {
		c.End(args.Name)
	}

	return again
}

func (c *Clones) waitForLock(ctx context.Context, args *pulumi.ErrorHookArgs) bool {
	template := templateOf(args.NewInputs)
	if template == "" || len(args.Errors) == 0 {
		return false
	}

	lock := proxmoxapi.Lock(args.Errors[0])
	if lock == "" {
		return false
	}

	if !c.free(ctx, args) {
		return false
	}

	c.mu.Lock()

	if c.locked == nil {
		c.locked = map[string]time.Time{}
	}

	since, known := c.locked[args.Name]
	if !known {
		since = time.Now()
		c.locked[args.Name] = since
	}

	c.mu.Unlock()

	pause := c.Timeout / 90
	if time.Since(since)+pause > c.Timeout {
		return false
	}

	c.Progress(fmt.Sprintf("%s waits for template %s, for at most %s (lifecycle.taskTimeout): %s", args.Name, template,
		c.Timeout, lock))

	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
	}

	return c.free(ctx, args)
}

// free says that nothing of a clone is there, nor another VM that was given its VMID meanwhile.
func (c *Clones) free(ctx context.Context, args *pulumi.ErrorHookArgs) bool {
	_, there, err := c.Proxmox.Find(ctx, int(hookutil.Number(args.NewInputs, "vmId")))

	return err == nil && !there
}

// templateOf is what a VM is cloned from; empty where it is no clone.
func templateOf(inputs resource.PropertyMap) string {
	clone := hookutil.Unwrap(inputs["clone"])
	if !clone.IsObject() {
		return ""
	}

	from := clone.ObjectValue()

	return fmt.Sprintf("%.0f on host %s", hookutil.Number(from, "vmId"), hookutil.String(from, "nodeName"))
}
