package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"talos-proxmox/components/proxmoxapi"
)

// healthy is a Proxmox VE with room for whatever tests want to make.
type healthy struct{ Proxmox }

func (healthy) Version(context.Context) (proxmoxapi.Version, error) {
	return proxmoxapi.Version{Text: "8.4.1", Major: 8}, nil
}

func (healthy) VMsOn(context.Context, string) ([]proxmoxapi.VM, error) { return nil, nil }

func (healthy) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	var hosts []proxmoxapi.Host
	for _, name := range []string{"a", "b", "pve", "pve1", "pve2", "pve3"} {
		hosts = append(hosts, proxmoxapi.Host{Name: name, Online: true, CPUs: 64, MemoryMiB: 1 << 20})
	}

	return hosts, nil
}

func (healthy) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{}, nil
}

func (healthy) Stores(context.Context, string) (map[string]proxmoxapi.Store, error) {
	stores := map[string]proxmoxapi.Store{}
	for _, name := range []string{"local", "local-lvm", "nfs"} {
		stores[name] = proxmoxapi.Store{Content: []string{"images", "iso", "snippets"}, Active: true, Free: 1 << 50}
	}

	return stores, nil
}

func (healthy) Snippets(context.Context, string, string) (map[string]int64, error) { return nil, nil }

func (healthy) Bridges(context.Context, string) ([]proxmoxapi.Bridge, error) {
	return []proxmoxapi.Bridge{{Name: "vmbr0"}}, nil
}

func (healthy) Time(context.Context, string) (time.Time, error) { return time.Now(), nil }

func (healthy) Permissions(context.Context) (proxmoxapi.Permissions, error) { return everything(), nil }

func (healthy) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	return proxmoxapi.Settings{}, nil
}

func (healthy) Mappings(context.Context) (map[string][]proxmoxapi.Mapped, error) { return nil, nil }

func (healthy) Links(context.Context, proxmoxapi.VM) ([]proxmoxapi.Link, error) {
	return nil, errors.New("QEMU guest agent is not running")
}

// everything is all that nodes may need.
func everything() proxmoxapi.Permissions {
	all := map[string]bool{}
	for _, name := range strings.Fields(`Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Mapping.Modify Mapping.Use Pool.Allocate Pool.Audit
		SDN.Use Sys.AccessNetwork Sys.Audit Sys.Console Sys.Modify VM.Allocate VM.Audit VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType VM.Config.Memory
		VM.Config.Network VM.Config.Options VM.GuestAgent.Audit VM.GuestAgent.FileRead VM.GuestAgent.FileWrite VM.Migrate VM.PowerMgmt`) {
		all[name] = true
	}

	return proxmoxapi.Permissions{"/": all}
}

// quietNetwork is a network in which no machine answers.
type quietNetwork struct{}

func (quietNetwork) Listening(context.Context, netip.Addr) int { return 0 }

// Extensions are all that tests name.
func (quietNetwork) Extensions(context.Context, string, string) ([]string, error) {
	return []string{
		"siderolabs/qemu-guest-agent", "siderolabs/tailscale", "siderolabs/iscsi-tools", "siderolabs/util-linux-tools",
		"siderolabs/nvidia-container-toolkit-lts", "siderolabs/nonfree-kmod-nvidia-lts",
	}, nil
}

// manyHosts is a Proxmox VE of several hosts.
type manyHosts struct {
	healthy

	vms     []proxmoxapi.VM
	files   map[string]map[string]int64
	devices map[string][]proxmoxapi.PCIDevice
	silent  string // a host that does not answer
	shared  map[string]bool
	asked   int
}

func (h *manyHosts) VMs(context.Context) ([]proxmoxapi.VM, error) { return h.vms, nil }

func (h *manyHosts) Files(_ context.Context, host, _ string) (map[string]int64, error) {
	h.asked++

	return h.files[host], nil
}

func (h *manyHosts) PCIDevices(_ context.Context, host string) ([]proxmoxapi.PCIDevice, error) {
	h.asked++

	if host == h.silent {
		return nil, fmt.Errorf("asking %s: %w", host, proxmoxapi.ErrHostSilent)
	}

	return h.devices[host], nil
}

func (h *manyHosts) SharedStores(context.Context) (map[string]bool, error) { return h.shared, nil }
