package generate

import (
	"net/netip"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/talosapi"
)

// machine is one node: its VM, and what runs in it.
type machine struct {
	vm       proxmoxapi.VM
	settings map[string]string
	// address by which it answered; its configuration and its system follow.
	address netip.Addr
	config  talosconfig.Provider
	system  talosapi.System
}

func role(m *machine) string {
	if m.config.Machine().Type().IsControlPlane() {
		return "controlplane"
	}

	return "worker"
}

// tree is a part of a stack file.
type tree = map[string]any

// mac is that of the first network interface.
func mac(m *machine) string {
	return strings.ToUpper(proxmoxapi.Properties(m.settings["net0"])["virtio"])
}

func (m *machine) hasCDROM() bool {
	for key, value := range m.settings {
		if key == "ide2" && strings.Contains(value, "media=cdrom") && !strings.Contains(value, "cloudinit") {
			return true
		}
	}

	return false
}
