package proxmoxapi

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

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
	return c.vmTask(ctx, vm, "POST", "/status/start", nil)
}

// Restart has a running VM shut down and start with what waits for that. It returns when the VM is off: Proxmox VE
// starts it after that, and does not report how that went.
func (c *Client) Restart(ctx context.Context, vm VM) error {
	return c.vmTask(ctx, vm, "POST", "/status/reboot", nil)
}

// shutdownSeconds is how long a guest may take to shut down before its power is cut. lifecycle.taskTimeout is longer.
const shutdownSeconds = 120

// Shutdown has a VM shut down, cuts its power where it does not in time, and returns when it is off.
func (c *Client) Shutdown(ctx context.Context, vm VM) error {
	return c.vmTask(ctx, vm, "POST", "/status/shutdown",
		map[string]any{"timeout": shutdownSeconds, "forceStop": 1})
}

// Resize makes a disk of a VM larger, which a running VM notices at once.
func (c *Client) Resize(ctx context.Context, vm VM, disk string, gib int) error {
	return c.vmTask(ctx, vm, "PUT", "/resize",
		map[string]string{"disk": disk, "size": fmt.Sprintf("%dG", gib)})
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
