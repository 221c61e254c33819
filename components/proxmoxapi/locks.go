package proxmoxapi

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// locks are what Proxmox VE says when something else is being done to a VM, or to the storage or file that it needs.
// It has done nothing then.
var locks = regexp.MustCompile(`VM is locked \([a-z-]+\)|can't lock file '[^']*' - got timeout|` +
	`cfs-lock '[^']*' error: got lock request timeout`)

// Lock is what a message of Proxmox VE says of a lock; empty where it is of something else.
func Lock(message string) string { return locks.FindString(message) }

// lockPause is how long a client waits before it repeats what a lock has refused.
const lockPause = 5 * time.Second

// untilUnlocked repeats what a lock refuses, within the bound of a task.
func (c *Client) untilUnlocked(ctx context.Context, call string, do func() error) error {
	for start := time.Now(); ; {
		err := do()
		if err == nil {
			return nil
		}

		lock := Lock(err.Error())
		if lock == "" {
			return err
		}

		if time.Since(start)+c.lockPause > c.taskTimeout {
			return fmt.Errorf("%w: gave up after %s (lifecycle.taskTimeout)", err, c.taskTimeout)
		}

		c.progress(fmt.Sprintf("waiting to send %s (%s of at most %s): %s", call,
			time.Since(start).Round(time.Second), c.taskTimeout, lock))

		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted while waiting to send %s: %w", call, err)
		case <-time.After(c.lockPause):
		}
	}
}
