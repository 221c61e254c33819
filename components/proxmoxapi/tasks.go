package proxmoxapi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// task makes a request that Proxmox VE answers with a task, and waits for the end of that. What is refused for now is
// sent again.
func (c *Client) task(ctx context.Context, host, method, path string, body any) error {
	return c.untilAdmitted(ctx, method+" "+path, always, func() error {
		_, err := c.taskOnce(ctx, host, method, path, body)

		return err
	})
}

// vmTask is task for a VM: what is refused for now is sent again to the same VM only. It returns the kind of the task,
// as Proxmox VE calls it ("qmstart").
func (c *Client) vmTask(ctx context.Context, vm VM, method, path string, body any) (kind string, err error) {
	path = qemu(vm) + path

	err = c.untilAdmitted(ctx, method+" "+path, c.sameVM(vm), func() (err error) {
		kind, err = c.taskOnce(ctx, vm.Host, method, path, body)

		return err
	})

	return kind, err
}

// taskOnce returns the kind of the task.
func (c *Client) taskOnce(ctx context.Context, host, method, path string, body any) (string, error) {
	var (
		id   proxmox.UPID
		call = method + " " + path
	)

	if err := c.request(ctx, method, path, body, &id); err != nil {
		return "", err
	}

	task := proxmox.NewTask(id, c.api())
	kind := task.Type // what it is asked next overwrites it

	if err := c.awaitEnd(ctx, host, call, task); err != nil {
		return "", err
	}

	if warnings, ok := strings.CutPrefix(task.ExitStatus, "WARNINGS: "); ok {
		c.progress(fmt.Sprintf("the task of %s has ended with warnings (%s): read its log on host %s", call, warnings, host))

		return kind, nil
	}

	if task.IsFailed {
		return "", fmt.Errorf("Proxmox VE on host %s: %s", host, task.ExitStatus)
	}

	return kind, nil
}

// awaitEnd waits for the end of a task, whether it fails or not.
func (c *Client) awaitEnd(ctx context.Context, host, call string, task *proxmox.Task) error {
	switch err := task.Wait(ctx, time.Second/4, c.taskTimeout); {
	case proxmox.IsTimeout(err):
		return fmt.Errorf("Proxmox VE on host %s: the task of %s still runs: gave up after %s (lifecycle.taskTimeout)",
			host, call, c.taskTimeout)
	case err != nil:
		return begunError{c.explain("the task of "+call, err)}
	default:
		return nil
	}
}
