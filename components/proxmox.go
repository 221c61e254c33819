package components

import (
	"talos-proxmox/components/preflight"
	k3srollout "talos-proxmox/components/rollout/k3s"
	"talos-proxmox/components/rollout/vmrestart"
)

// Proxmox is what is asked of Proxmox VE in addition to the provider; *proxmoxapi.Client implements it.
type Proxmox interface {
	preflight.Proxmox
	vmrestart.Proxmox
	k3srollout.Proxmox
}
