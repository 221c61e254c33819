package components

import (
	"context"

	"talos-proxmox/components/preflight"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/rollout/vmrestart"
)

// Proxmox is what is asked of Proxmox VE in addition to the provider; *proxmoxapi.Client implements it.
type Proxmox interface {
	preflight.Proxmox
	vmrestart.Proxmox

	Shutdown(ctx context.Context, vm proxmoxapi.VM) error
	GuestFile(ctx context.Context, vm proxmoxapi.VM, path string) (string, error)
	WriteGuestFile(ctx context.Context, vm proxmoxapi.VM, path, content string) error
}
