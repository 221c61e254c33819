package proxmoxapi

import (
	"context"
	"fmt"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// shutdownSeconds is how long a guest may take to shut down before its power is cut.
const shutdownSeconds = 120

// Shutdown has a VM shut down, cuts its power where it does not in time, and returns when it is off.
func (c *Client) Shutdown(ctx context.Context, vm VM) error {
	call := qemu(vm) + "/status/shutdown"

	var id proxmox.UPID
	if err := c.explain("POST "+call, c.api.Post(ctx, call, map[string]any{"timeout": shutdownSeconds, "forceStop": 1}, &id)); err != nil {
		return err
	}

	task := proxmox.NewTask(id, c.api)

	if err := task.Wait(ctx, time.Second/4, 2*shutdownSeconds*time.Second); err != nil {
		return c.explain("the task of "+call, err)
	}

	if task.IsFailed {
		return fmt.Errorf("Proxmox VE on host %s: %s", vm.Host, task.ExitStatus)
	}

	return nil
}
