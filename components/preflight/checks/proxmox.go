package checks

import (
	"context"
	"time"

	"github.com/luthermonson/go-proxmox"

	"talos-proxmox/components/proxmoxapi"
)

// Proxmox is what the checks read from Proxmox VE; *proxmoxapi.Client implements it.
type Proxmox interface {
	Version(ctx context.Context) (proxmoxapi.Version, error)
	VMs(ctx context.Context) ([]proxmoxapi.VM, error)
	VMsOn(ctx context.Context, host string) ([]proxmoxapi.VM, error)
	Config(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.VMConfig, error)
	Settings(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.Settings, error)
	Process(ctx context.Context, vm proxmoxapi.VM) (int, error)
	Links(ctx context.Context, vm proxmoxapi.VM) ([]proxmoxapi.Link, error)
	PCIDevices(ctx context.Context, host string) ([]proxmoxapi.PCIDevice, error)
	FirewallOn(ctx context.Context) (bool, error)
	FirewallRules(ctx context.Context, vm proxmoxapi.VM) ([]proxmox.FirewallRule, error)
	HAComments(ctx context.Context) (map[string]string, error)
	HARules(ctx context.Context) ([]proxmoxapi.HARule, error)
	HAGroups(ctx context.Context) ([]string, error)
	ResourcePools(ctx context.Context) ([]string, error)
	SharedStores(ctx context.Context) (map[string]bool, error)
	Files(ctx context.Context, host, datastore string) (map[string]int64, error)
	Snippets(ctx context.Context, host, datastore string) (map[string]int64, error)
	DiskImages(ctx context.Context, host, datastore string) ([]proxmoxapi.DiskImage, error)
	Hosts(ctx context.Context) ([]proxmoxapi.Host, error)
	Stores(ctx context.Context, host string) (map[string]proxmoxapi.Store, error)
	Bridges(ctx context.Context, host string) ([]proxmoxapi.Bridge, error)
	Time(ctx context.Context, host string) (time.Time, error)
	Permissions(ctx context.Context) (proxmoxapi.Permissions, error)
	Mappings(ctx context.Context) (map[string][]proxmoxapi.Mapped, error)
}
