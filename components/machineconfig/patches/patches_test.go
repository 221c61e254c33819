package patches

import (
	"testing"

	"talos-proxmox/components/plan"
)

// TestInstallDisk: Linux gives letters in the order of the positions on a bus, whichever disk is the system's.
func TestInstallDisk(t *testing.T) {
	for want, positions := range map[string][]string{
		"/dev/sda": {"scsi0", "scsi1", "virtio0"},
		"/dev/sdb": {"scsi1", "scsi0", "scsi2"},
		"/dev/sdc": {"scsi10", "scsi9", "scsi2", "virtio0"},
		"/dev/vda": {"virtio0", "scsi0"},
		"/dev/vdb": {"virtio3", "virtio1", "virtio15", "scsi0"},
	} {
		var node plan.Node
		for _, at := range positions {
			node.Disks = append(node.Disks, plan.Disk{Interface: at})
		}

		if got := installDisk(node); got != want {
			t.Errorf("%v: got %s, want %s", positions, got, want)
		}
	}
}
