package components

import (
	"context"
	"time"

	"talos-proxmox/components/proxmoxapi"
)

// Proxmox is what is asked of Proxmox VE beside the provider; *proxmoxapi.Client answers it.
type Proxmox interface {
	VMs(ctx context.Context) ([]proxmoxapi.VM, error)
	VMsOn(ctx context.Context, host string) ([]proxmoxapi.VM, error)
	Find(ctx context.Context, vmid int) (proxmoxapi.VM, bool, error)
	Config(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.VMConfig, error)
	Settings(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.Settings, error)
	Start(ctx context.Context, vm proxmoxapi.VM) error
	Restart(ctx context.Context, vm proxmoxapi.VM) error
	Shutdown(ctx context.Context, vm proxmoxapi.VM) error
	Resize(ctx context.Context, vm proxmoxapi.VM, disk string, gib int) error
	Process(ctx context.Context, vm proxmoxapi.VM) (int, error)
	Links(ctx context.Context, vm proxmoxapi.VM) ([]proxmoxapi.Link, error)
	Eject(ctx context.Context, vm proxmoxapi.VM, drive string) error
	PCIDevices(ctx context.Context, host string) ([]proxmoxapi.PCIDevice, error)
	FirewallOn(ctx context.Context) (bool, error)
	HAGroups(ctx context.Context) ([]string, error)
	SharedStores(ctx context.Context) (map[string]bool, error)
	Files(ctx context.Context, host, datastore string) (map[string]int64, error)
	Hosts(ctx context.Context) ([]proxmoxapi.Host, error)
	Stores(ctx context.Context, host string) (map[string]proxmoxapi.Store, error)
	Bridges(ctx context.Context, host string) ([]proxmoxapi.Bridge, error)
	Time(ctx context.Context, host string) (time.Time, error)
	Permissions(ctx context.Context) (proxmoxapi.Permissions, error)
	Mappings(ctx context.Context) (map[string][]proxmoxapi.Mapped, error)
	GuestFile(ctx context.Context, vm proxmoxapi.VM, path string) (string, error)
	WriteGuestFile(ctx context.Context, vm proxmoxapi.VM, path, content string) error
	Offered(ctx context.Context, host, url string) (int64, error)
}
