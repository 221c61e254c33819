package proxmoxvm

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// restartOptions are the options of a disk that a running VM does not take (qemu-server: vmconfig_update_disk), with
// what they are where the disk states none.
var restartOptions = map[string]string{
	"aio": "io_uring", "cache": "none", "discard": "ignore", "iothread": "0", "ssd": "0",
}

// diskChange is a disk more or less, another size or place, or an option that a node of the plan has.
var diskChange = regexp.MustCompile(
	`^disks\[\d+\](\.(aio|backup|cache|datastoreId|discard|interface|iothread|replicate|size|ssd))?$`)

// AppliedChanges are those of the changed paths that are applied to an existing VM. Of disks, the inputs also differ in
// what the program ignores, such as the speed of an imported VM. The system disk of a clone keeps the options of its
// template.
func AppliedChanges(n plan.Node, changes []string) []string {
	return slices.DeleteFunc(slices.Clone(changes), func(path string) bool {
		if Property(path) == "disks" && !diskChange.MatchString(path) {
			return true
		}

		option, system := strings.CutPrefix(path, "disks[0].")

		return n.Template != "" && system && slices.Contains(templateOptions, option)
	})
}

// DisksPending says that the provider, which writes the options of all disks when any of them changes, writes what
// Proxmox VE keeps pending until the VM is restarted. Current are the settings that the VM runs with: an option that a
// disk does not state differs from its default there. Changes are paths of those that are applied.
func DisksPending(n plan.Node, current map[string]string, changes []string, before, after []resource.PropertyMap) bool {
	// Sizes of inputs and outputs are not compared: those of a disk that a hook has made larger differ for good.
	if !slices.ContainsFunc(changes, func(path string) bool { return Property(path) == "disks" }) {
		return false
	}

	for i, disk := range after {
		at := hookutil.String(disk, "interface")
		setting, there := current[at]

		switch {
		case !there && !slices.ContainsFunc(before, func(d resource.PropertyMap) bool {
			return hookutil.String(d, "interface") == at
		}):
			if attachedCold(at, current) {
				return true
			}

			continue
		case !there:
			continue // nothing is known of the VM
		case i == 0 && n.Template != "" && len(before) > 0:
			disk = before[0]
		}

		is := proxmoxapi.Properties(setting)

		for option := range restartOptions {
			value, written := writtenOption(disk, at, option)
			if written && is[option] != value {
				return true
			}
		}
	}

	return false
}

// attachedCold says that a new disk is attached when the VM is restarted: Proxmox VE plugs none into a running SATA or
// IDE controller, nor where the VM does not allow it.
func attachedCold(at string, current map[string]string) bool {
	switch features := cmp.Or(current["hotplug"], "1"); {
	case strings.HasPrefix(at, "sata"), strings.HasPrefix(at, "ide"):
		return true
	case len(current) == 0 || features == "1":
		return false
	default:
		return !slices.Contains(strings.Split(features, ","), "disk")
	}
}

// IsPlannedDisk says that a value of a disk that waits for a restart, and not what the VM runs with, is what the plan
// asks for.
func IsPlannedDisk(n plan.Node, key, current, pending string) bool {
	i := slices.IndexFunc(n.Disks, func(d plan.Disk) bool { return d.Interface == key })
	if i < 0 || pending == "" {
		return false
	}

	d := n.Disks[i]
	is, next := proxmoxapi.Properties(current), proxmoxapi.Properties(pending)

	// Another volume in its place is not of the program's making.
	if current != "" && is[""] != next[""] {
		return false
	}

	want := map[string]string{
		"aio": d.AIO, "cache": d.Cache, "discard": map[bool]string{false: "ignore", true: "on"}[d.Discard],
		"iothread": flag(d.IOThread), "ssd": flag(d.SSD),
	}

	for option, otherwise := range restartOptions {
		wanted := want[option]
		if i == 0 && n.Template != "" {
			wanted = is[option] // It keeps the options of its template.
		}

		// A virtio disk has no option ssd.
		if option == "ssd" && strings.HasPrefix(key, "virtio") {
			continue
		}

		if cmp.Or(next[option], otherwise) != cmp.Or(wanted, otherwise) {
			return false
		}
	}

	return true
}

// templateOptions are those of the system disk of a clone, which are those of its template.
var templateOptions = []string{"aio", "backup", "cache", "discard", "fileFormat", "iothread", "replicate", "ssd"}

// diskOptions are those that the provider writes for each disk that is not a template's.
var diskOptions = []string{"aio", "backup", "cache", "discard", "replicate", "iothread", "ssd"}

// newDisk is what Proxmox VE creates a disk of: its datastore, its size and the options that the provider writes.
func newDisk(disk resource.PropertyMap) string {
	at := hookutil.String(disk, "interface")
	text := fmt.Sprintf("%s:%d", hookutil.String(disk, "datastoreId"), int(hookutil.Number(disk, "size")))

	for _, option := range diskOptions {
		if value, written := writtenOption(disk, at, option); written {
			text += "," + option + "=" + value
		}
	}

	return text
}

// writtenOption is what the provider writes for an option of a disk, if it does: not each bus has each option.
func writtenOption(disk resource.PropertyMap, at, option string) (string, bool) {
	if option == "ssd" && strings.HasPrefix(at, "virtio") ||
		option == "iothread" && (strings.HasPrefix(at, "sata") || strings.HasPrefix(at, "ide")) {
		return "", false
	}

	switch value := hookutil.Unwrap(disk[resource.PropertyKey(option)]); {
	case value.IsString():
		return value.StringValue(), value.StringValue() != ""
	case value.IsBool():
		return flag(value.BoolValue()), true
	default:
		return "", false
	}
}

// flag is how Proxmox VE writes a switch.
func flag(on bool) string { return map[bool]string{false: "0", true: "1"}[on] }
