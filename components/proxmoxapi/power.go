package proxmoxapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
)

// Settings are those of a VM, by key.
type Settings struct {
	// Current are what it runs with.
	Current map[string]string
	// Pending are the values that wait for its restart; an empty one means that the setting is to go.
	Pending map[string]string
}

// Disk is the size of a disk in GiB, rounded up; 0 when there is none, or Proxmox VE does not say.
func (s Settings) Disk(position string) int { return sizeGiB(s.Current[position]) }

// DefaultCPUUnits is the weight of a VM that states none.
const DefaultCPUUnits = 100

// CPUUnits is the weight of a VM against the others of its host.
func (s Settings) CPUUnits() int {
	units, err := strconv.Atoi(s.Current["cpuunits"])
	if err != nil {
		return DefaultCPUUnits
	}

	return units
}

// PendingKeys are the settings that wait for a restart, sorted.
func (s Settings) PendingKeys() []string {
	var keys []string
	for key := range s.Pending {
		keys = append(keys, key)
	}

	slices.Sort(keys)

	return keys
}

// Settings returns what a VM runs with, and what waits for its restart.
func (c *Client) Settings(ctx context.Context, vm VM) (Settings, error) {
	var all proxmox.PendingConfiguration
	if err := c.get(ctx, qemu(vm)+"/pending", &all); err != nil {
		return Settings{}, err
	}

	found := Settings{Current: map[string]string{}, Pending: map[string]string{}}

	for _, s := range all {
		if s.Value != nil {
			found.Current[s.Key] = setting(s.Value)
		}

		switch {
		case s.Pending != nil:
			found.Pending[s.Key] = setting(s.Pending)
		case s.Delete != nil:
			found.Pending[s.Key] = ""
		}
	}

	return found, nil
}

// Start starts a VM that is off, and returns when it runs. The error says why it does not.
func (c *Client) Start(ctx context.Context, vm VM) error {
	return c.switchTo(ctx, vm, "/status/start", nil, true)
}

// Restart has a running VM shut down and start with what waits for that. It returns when the VM is off: Proxmox VE
// starts it after that, and does not report how that went.
func (c *Client) Restart(ctx context.Context, vm VM) error {
	_, err := c.vmTask(ctx, vm, "POST", "/status/reboot", nil)

	return err
}

// shutdownSeconds is how long a guest may take to shut down before its power is cut. lifecycle.taskTimeout is longer.
const shutdownSeconds = 120

// Shutdown has a VM shut down, cuts its power where it does not in time, and returns when it is off.
func (c *Client) Shutdown(ctx context.Context, vm VM) error {
	return c.switchTo(ctx, vm, "/status/shutdown", map[string]any{"timeout": shutdownSeconds, "forceStop": 1}, false)
}

// switchTo has a VM started or shut down, and returns when it runs, or is off. High availability does it by itself: the
// task that Proxmox VE answers with ("hastart", "hastop") ends when that was asked of it.
func (c *Client) switchTo(ctx context.Context, vm VM, call string, body any, running bool) error {
	kind, err := c.vmTask(ctx, vm, "POST", call, body)
	if err != nil || !strings.HasPrefix(kind, "ha") {
		return err
	}

	begun := time.Now()

	for {
		reached, why := c.reached(ctx, vm, running)
		if reached {
			return nil
		}

		late := time.Since(begun) > c.taskTimeout
		if late {
			why = fmt.Errorf("%w: gave up after %s (lifecycle.taskTimeout)", why, c.taskTimeout)
		}

		if late || errors.Is(why, errHAStuck) {
			return fmt.Errorf("VM %d should have been %s by high availability, but %w. See 'ha-manager status' on "+
				"host %s", vm.ID,
				powerText(running), why, vm.Host)
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted while VM %d was being %s by high availability: %w", vm.ID,
				powerText(running), why)
		case <-time.After(time.Second / 4):
		}
	}
}

// errHAStuck says that high availability does nothing more about a VM.
var errHAStuck = errors.New("high availability has given up on it")

// reached says whether a VM runs, or is off, and why that is not so, or not known. High availability may have moved it.
func (c *Client) reached(ctx context.Context, vm VM, running bool) (bool, error) {
	v, now, err := c.current(ctx, vm.ID)

	switch {
	case err != nil:
		return false, fmt.Errorf("its state could not be determined: %w", err)
	case v.ID == 0:
		return false, errors.New("no longer exists")
	case now.Status == map[bool]string{false: "stopped", true: "running"}[running]:
		return true, nil
	case now.HA.State == "error":
		return false, fmt.Errorf("is %s on host %s: %w", now.Status, v.Host, errHAStuck)
	default:
		return false, fmt.Errorf("is %s on host %s, in state %q of high availability", now.Status, v.Host, now.HA.State)
	}
}

func powerText(running bool) string {
	if running {
		return "running"
	}

	return "off"
}

// Resize makes a disk of a VM larger, which a running VM notices at once.
func (c *Client) Resize(ctx context.Context, vm VM, disk string, gib int) error {
	_, err := c.vmTask(ctx, vm, "PUT", "/resize", map[string]string{"disk": disk, "size": fmt.Sprintf("%dG", gib)})

	return err
}

// SetCPUUnits changes the weight of a VM, at once where it runs.
func (c *Client) SetCPUUnits(ctx context.Context, vm VM, units int) error {
	path := qemu(vm) + "/config"

	return c.untilAdmitted(ctx, "PUT "+path, c.sameVM(vm), func() error {
		return c.request(ctx, "PUT", path, map[string]int{"cpuunits": units}, nil)
	})
}

// MoveToPool puts a VM into a resource pool, out of the one that it is in.
func (c *Client) MoveToPool(ctx context.Context, vm VM, pool string) error {
	call, members := "/pools/"+url.PathEscape(pool), map[string]any{"vms": strconv.Itoa(vm.ID)}
	if vm.Pool != "" {
		members["allow-move"] = 1
	}

	return c.request(ctx, "PUT", call, members, nil)
}
