package proxmoxvm

import (
	"context"

	"github.com/luthermonson/go-proxmox"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// Proxmox is what is asked of Proxmox VE in addition to the provider; *proxmoxapi.Client implements it.
type Proxmox interface {
	vmidentity.Proxmox

	Permissions(ctx context.Context) (proxmoxapi.Permissions, error)
	Settings(ctx context.Context, vm proxmoxapi.VM) (proxmoxapi.Settings, error)
	FirewallRules(ctx context.Context, vm proxmoxapi.VM) ([]proxmox.FirewallRule, error)
	MoveToPool(ctx context.Context, vm proxmoxapi.VM, pool string) error
	HAComments(ctx context.Context) (map[string]string, error)
	HARules(ctx context.Context) ([]proxmoxapi.HARule, error)
	SetHARule(ctx context.Context, rule proxmoxapi.HARule) error
	DeleteHARule(ctx context.Context, name string) error
	SetCPUUnits(ctx context.Context, vm proxmoxapi.VM, units int) error
	Resize(ctx context.Context, vm proxmoxapi.VM, disk string, gib int) error
	Links(ctx context.Context, vm proxmoxapi.VM) ([]proxmoxapi.Link, error)
	Eject(ctx context.Context, vm proxmoxapi.VM, drive string) error
	SharedStores(ctx context.Context) (map[string]bool, error)
	Files(ctx context.Context, host, datastore string) (map[string]int64, error)
	Snippets(ctx context.Context, host, datastore string) (map[string]int64, error)
	Mappings(ctx context.Context) (map[string][]proxmoxapi.Mapped, error)
	DeleteMapping(ctx context.Context, name string) error
	URLSize(ctx context.Context, host, url string) (int64, error)
	Download(ctx context.Context, host, datastore string, file proxmoxapi.Download) error
	DeleteFile(ctx context.Context, host, volume string) error
	AwaitDeletions(ctx context.Context, host, datastore string) error
}
