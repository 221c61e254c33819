// Package preflighttest has Proxmox VEs for the tests of the preflight checks. What a test does not expect to be asked
// is nil, and panics.
package preflighttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"

	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
)

// Healthy is a Proxmox VE with room for whatever tests want to make.
type Healthy struct{ checks.Proxmox }

// Version is a supported one.
func (Healthy) Version(context.Context) (proxmoxapi.Version, error) {
	return proxmoxapi.Version{Text: "8.4.1", Major: 8}, nil
}

// VMsOn has no host say more of its VMs than the cluster does.
func (Healthy) VMsOn(context.Context, string) ([]proxmoxapi.VM, error) { return nil, nil }

// Hosts are all that plans of tests name.
func (Healthy) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	var hosts []proxmoxapi.Host
	for _, name := range []string{"a", "b", "pve", "pve1", "pve2", "pve3"} {
		hosts = append(hosts, proxmoxapi.Host{Name: name, Online: true, CPUs: 64, MemoryMiB: 1 << 20})
	}

	return hosts, nil
}

// Config has nothing.
func (Healthy) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{}, nil
}

// Stores take everything.
func (Healthy) Stores(context.Context, string) (map[string]proxmoxapi.Store, error) {
	stores := map[string]proxmoxapi.Store{}
	for _, name := range []string{"local", "local-lvm", "nfs"} {
		stores[name] = proxmoxapi.Store{Content: []string{"images", "iso", "snippets"}, Active: true, Free: 1 << 50}
	}

	return stores, nil
}

// Snippets are none.
func (Healthy) Snippets(context.Context, string, string) (map[string]int64, error) { return nil, nil }

// DiskImages are none.
func (Healthy) DiskImages(context.Context, string, string) ([]proxmoxapi.DiskImage, error) {
	return nil, nil
}

// Bridges are the default one.
func (Healthy) Bridges(context.Context, string) ([]proxmoxapi.Bridge, error) {
	return []proxmoxapi.Bridge{{Name: "vmbr0"}}, nil
}

// Time is ours.
func (Healthy) Time(context.Context, string) (time.Time, error) { return time.Now(), nil }

// Permissions are all that nodes may need.
func (Healthy) Permissions(context.Context) (proxmoxapi.Permissions, error) { return everything(), nil }

// Settings are none.
func (Healthy) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	return proxmoxapi.Settings{}, nil
}

// FirewallRules are none.
func (Healthy) FirewallRules(context.Context, proxmoxapi.VM) ([]proxmox.FirewallRule, error) {
	return nil, nil
}

// Mappings are none.
func (Healthy) Mappings(context.Context) (map[string][]proxmoxapi.Mapped, error) { return nil, nil }

// ResourcePools are those that plans of tests name.
func (Healthy) ResourcePools(context.Context) ([]string, error) { return []string{"talos"}, nil }

// SharedStores are not known.
func (Healthy) SharedStores(context.Context) (map[string]bool, error) { return nil, nil }

// Links fails: no VM has a guest agent.
func (Healthy) Links(context.Context, proxmoxapi.VM) ([]proxmoxapi.Link, error) {
	return nil, errors.New("QEMU guest agent is not running")
}

// everything is all that nodes may need.
func everything() proxmoxapi.Permissions {
	all := map[string]bool{}
	for _, name := range strings.Fields(`
		Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Mapping.Modify
		Mapping.Use Pool.Allocate Pool.Audit SDN.Use Sys.AccessNetwork Sys.Audit Sys.Console Sys.Modify VM.Allocate
		VM.Audit VM.Clone VM.Config.CDROM VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.HWType
		VM.Config.Memory VM.Config.Network VM.Config.Options VM.GuestAgent.Audit VM.GuestAgent.FileRead
		VM.GuestAgent.FileWrite VM.Migrate VM.PowerMgmt
	`) {
		all[name] = true
	}

	return proxmoxapi.Permissions{"/": all}
}

// ManyHosts is a Proxmox VE of several hosts.
type ManyHosts struct {
	Healthy

	// Listed are its VMs.
	Listed []proxmoxapi.VM
	// Volumes are the sizes of the files of each host.
	Volumes map[string]map[string]int64
	// Devices are those of each host.
	Devices map[string][]proxmoxapi.PCIDevice
	// Unreachable is a host that does not answer.
	Unreachable string
	// Shared are the datastores that all hosts see.
	Shared map[string]bool
	// SharedErr is what it answers instead of Shared.
	SharedErr error
	// Asked counts what was asked of files and devices.
	Asked int
}

// VMs are Listed.
func (h *ManyHosts) VMs(context.Context) ([]proxmoxapi.VM, error) { return h.Listed, nil }

// Files are the Volumes of a host.
func (h *ManyHosts) Files(_ context.Context, host, _ string) (map[string]int64, error) {
	h.Asked++

	return h.Volumes[host], nil
}

// PCIDevices are the Devices of a host.
func (h *ManyHosts) PCIDevices(_ context.Context, host string) ([]proxmoxapi.PCIDevice, error) {
	h.Asked++

	if host == h.Unreachable {
		return nil, fmt.Errorf("asking %s: %w", host, proxmoxapi.ErrHostUnreachable)
	}

	return h.Devices[host], nil
}

// SharedStores are Shared, or SharedErr is returned.
func (h *ManyHosts) SharedStores(context.Context) (map[string]bool, error) {
	return h.Shared, h.SharedErr
}

// FixedVMs is a Proxmox VE that is a list: each machine has one disk.
type FixedVMs struct {
	Healthy

	// Listed are its VMs.
	Listed []proxmoxapi.VM
	// Interface is where each VM has its disk; empty: none has one.
	Interface string
	// SizeGiB is that of the disks.
	SizeGiB int
	// Err is what it answers instead of its VMs.
	Err error
}

// VMs are Listed, or Err is returned.
func (s FixedVMs) VMs(context.Context) ([]proxmoxapi.VM, error) { return s.Listed, s.Err }

// Config has the disk.
func (s FixedVMs) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	c := proxmoxapi.VMConfig{
		Disks: map[string]int{}, Machine: "i440fx", Firmware: "seabios",
		SCSIController: "virtio-scsi-pci",
	}
	if s.Interface != "" {
		c.Disks[s.Interface] = s.SizeGiB
	}

	return c, nil
}
