package proxmoxvm

import (
	"fmt"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/components/hookutil"
)

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
