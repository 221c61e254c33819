package proxmoxvm

import (
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// restarting are the properties of a VM that the provider changes by restarting it (terraform-provider-proxmox v0.69.1:
// proxmoxtf/resource/vm/vm.go, vmUpdate). Without them are those that make another VM.
var restarting = []string{
	"acpi", "agent", "audioDevice", "bios", "bootOrders", "cpu", "efiDisk", "hostpcis", "initialization", "keyboardLayout",
	"kvmArguments", "machine",
	"memory", "networkDevices", "numas", "operatingSystem", "scsiHardware", "serialDevices", "tabletDevice", "template",
	"tpmState", "usbs", "vga", "watchdog",
}

// diskRestarts are properties of a disk that is there: one that moves to another datastore does so while the VM is off.
// Proxmox VE keeps the others pending until the VM is restarted (qemu-server: vmconfig_update_disk). The provider
// restarts it for aio alone, and the program for the rest.
var diskRestarts = regexp.MustCompile(`^disks\[\d+\]\.(aio|cache|datastoreId|discard|iothread|ssd)$`)

// Restarts are the properties of a VM, of those that change, for which it is restarted. Changes are paths such as
// "memory.dedicated" and "disks[0].size".
func Restarts(changes []string) []string {
	var found []string

	for _, path := range changes {
		property := Property(path)

		if slices.Contains(restarting, property) || diskRestarts.MatchString(path) {
			found = append(found, property)
		}
	}

	slices.Sort(found)

	return slices.Compact(found)
}

// Properties are those of a VM that change, without the mark of a replacement, of which the machine knows nothing.
func Properties(changes []string) []string {
	var found []string

	for _, path := range changes {
		if path != vmidentity.ReplaceMark {
			found = append(found, Property(path))
		}
	}

	slices.Sort(found)

	return slices.Compact(found)
}

// Property is the one that a path is about: "memory" of "memory.dedicated".
func Property(path string) string {
	if end := strings.IndexAny(path, ".["); end >= 0 {
		return path[:end]
	}

	return path
}
