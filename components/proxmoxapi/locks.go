package proxmoxapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// locks are what Proxmox VE says when something else is being done to a VM, or to the storage or file that it needs.
// It has done nothing then.
var locks = regexp.MustCompile(`VM is locked \([a-z-]+\)|can't lock file '[^']*' - got timeout|` +
	`cfs-lock '[^']*' error: got lock request timeout`)

// Lock is what a message of Proxmox VE says of a lock; empty where it is of something else.
func Lock(message string) string { return locks.FindString(message) }

// refusal is why a change was refused for now, and for how long, before anything was done: by a lock, or by a server
// that limits requests. It is empty for another error.
func (c *Client) refusal(err error) (why string, pause time.Duration) {
	var failed failedError

	switch {
	case err == nil, errors.As(err, new(begunError)):
		return "", 0
	case errors.As(err, &failed) && failed.code == http.StatusTooManyRequests:
		return failed.Error(), max(failed.after, c.lockPause)
	default:
		return Lock(err.Error()), c.lockPause
	}
}

// untilAdmitted repeats what is refused for now, within the bound of a task. Only the caller knows whose VM it asked
// for, and a VMID can be given to another VM meanwhile: before each repetition, unchanged says whether it still is the
// one that refused first.
func (c *Client) untilAdmitted(ctx context.Context, call string, unchanged func(context.Context) error,
	do func() error,
) error {
	start, err := time.Now(), do()

	why, pause := c.refusal(err)
	if why == "" {
		return err
	}

	if changed := unchanged(ctx); changed != nil {
		return fmt.Errorf("%w: not sent again: %w", err, changed)
	}

	for ; why != ""; why, pause = c.refusal(err) {
		if time.Since(start)+pause > c.taskTimeout {
			return fmt.Errorf("%w: gave up after %s (lifecycle.taskTimeout)", err, c.taskTimeout)
		}

		c.progress(fmt.Sprintf("waiting to send %s (%s of at most %s): %s", call,
			time.Since(start).Round(time.Second), c.taskTimeout, why))

		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted while waiting to send %s: %w", call, err)
		case <-time.After(pause):
		}

		if changed := unchanged(ctx); changed != nil {
			return fmt.Errorf("%w: not sent again: %w", err, changed)
		}

		err = do()
	}

	return err
}

// sameVM returns a function that holds a VM to the UUID that it had when the function was called first.
func (c *Client) sameVM(vm VM) func(context.Context) error {
	var first string

	return func(ctx context.Context) error {
		config, err := c.Config(ctx, vm)

		switch {
		case err != nil:
			return fmt.Errorf("could not determine whether VM %d is still the same VM: %w", vm.ID, err)
		case config.UUID == "":
			return fmt.Errorf("could not determine whether VM %d is still the same VM: it states no UUID (smbios1)",
				vm.ID)
		case first == "":
			first = config.UUID
		case !strings.EqualFold(first, config.UUID):
			return fmt.Errorf("VM %d was replaced by another VM: its UUID is %s and was %s", vm.ID, config.UUID, first)
		}

		return nil
	}
}

// always is for what is no VM's.
func always(context.Context) error { return nil }

// begunError is what went wrong while the end of a task was waited for. The task itself goes on, so that its request is
// not sent again, whatever it was.
type begunError struct{ error }

func (e begunError) Unwrap() error { return e.error }
