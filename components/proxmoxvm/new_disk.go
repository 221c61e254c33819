package proxmoxvm

import (
	"fmt"
	"slices"

	"talos-proxmox/components/plan"
)

// newDisk is what Proxmox VE creates a disk of: its datastore, its size and the options that the provider writes.
func newDisk(n plan.Node, at string, gib int) string {
	i := slices.IndexFunc(n.Disks, func(d plan.Disk) bool { return d.Interface == at })
	if i < 0 {
		return fmt.Sprintf("<datastore>:%d", gib)
	}

	d := n.Disks[i]
	text := fmt.Sprintf("%s:%d,aio=%s,backup=%s,cache=%s,discard=%s,replicate=%s", d.Datastore, gib, d.AIO, flag(d.Backup),
		d.Cache, map[bool]string{false: "ignore", true: "on"}[d.Discard], flag(d.Replicate))

	if bus, _ := d.Position(); bus == "scsi" || bus == "virtio" {
		text += ",iothread=" + flag(d.IOThread)
	}

	if bus, _ := d.Position(); bus != "virtio" {
		text += ",ssd=" + flag(d.SSD)
	}

	return text
}

// flag is how Proxmox VE writes a switch.
func flag(on bool) string { return map[bool]string{false: "0", true: "1"}[on] }
