package components

import (
	"talos-proxmox/components/rollout/k3s"
	"talos-proxmox/components/rollout/vmrestart"
)

// Proxmox is what hooks ask of Proxmox VE, in addition to what the provider does; *proxmoxapi.Client implements it.
type Proxmox = vmrestart.Proxmox

// K3sProxmox is Proxmox for nodes with K3s, which are reached through their guest agents; *proxmoxapi.Client implements
// it.
type K3sProxmox interface {
	Proxmox
	k3s.Proxmox
}
