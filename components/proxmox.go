package components

import (
	"context"

	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxapi"
)

// Proxmox is what is asked of Proxmox VE in addition to the provider; *proxmoxapi.Client implements it.
type Proxmox interface {
	preflight.Proxmox

	Find(ctx context.Context, vmid int) (proxmoxapi.VM, bool, error)
	Start(ctx context.Context, vm proxmoxapi.VM) error
	Restart(ctx context.Context, vm proxmoxapi.VM) error
	Shutdown(ctx context.Context, vm proxmoxapi.VM) error
	Resize(ctx context.Context, vm proxmoxapi.VM, disk string, gib int) error
	Links(ctx context.Context, vm proxmoxapi.VM) ([]proxmoxapi.Link, error)
	Eject(ctx context.Context, vm proxmoxapi.VM, drive string) error
	GuestFile(ctx context.Context, vm proxmoxapi.VM, path string) (string, error)
	WriteGuestFile(ctx context.Context, vm proxmoxapi.VM, path, content string) error
	Offered(ctx context.Context, host, url string) (int64, error)
}
