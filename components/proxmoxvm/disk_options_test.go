package proxmoxvm

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
)

// TestDisksPending: the provider writes the options of all disks when one of them changes, and a disk that does not
// state one has another than its default to Proxmox VE.
func TestDisksPending(t *testing.T) {
	disk := func(at string, size float64, backup bool) resource.PropertyMap {
		return resource.NewPropertyMapFromMap(map[string]any{
			"interface": at, "size": size, "aio": "io_uring", "cache": "none", "discard": "on", "iothread": false, "ssd": false,
			"backup": backup,
		})
	}

	const (
		whole = "tank:x,aio=io_uring,cache=none,discard=on,iothread=0,ssd=0,size=40G"
		bare  = "tank:x,aio=io_uring,discard=on,size=40G"
	)

	one := []resource.PropertyMap{disk("scsi0", 40, true)}

	for name, c := range map[string]struct {
		template      string
		current       map[string]string
		changes       []string
		before, after []resource.PropertyMap
		want          bool
	}{
		"nothing changes": {current: map[string]string{"scsi0": bare}, before: one, after: one},
		"nothing of the disks": {
			current: map[string]string{"scsi0": bare}, before: one, after: one, changes: []string{"tags[0]"},
		},
		"a disk that a hook has made larger": {
			current: map[string]string{"scsi0": bare}, before: []resource.PropertyMap{disk("scsi0", 50, true)}, after: one,
			changes: []string{"tags[0]"},
		},
		"a live option": {
			current: map[string]string{"scsi0": whole}, before: one, after: []resource.PropertyMap{disk("scsi0", 40, false)},
			changes: []string{"disks[0].backup"},
		},
		"a live option, and others that are not stated": {
			current: map[string]string{"scsi0": bare}, before: one, after: []resource.PropertyMap{disk("scsi0", 40, false)},
			changes: []string{"disks[0].backup"}, want: true,
		},
		"a clone gets a disk": {
			changes:  []string{"disks[1]"},
			template: "9000", current: map[string]string{"scsi0": bare}, before: one,
			after: []resource.PropertyMap{
				resource.NewPropertyMapFromMap(map[string]any{"interface": "scsi0", "size": 40.0}), disk("scsi1", 10, true),
			}, want: true,
		},
		"a disk more": {
			changes: []string{"disks[1]"},
			current: map[string]string{"scsi0": whole}, before: one,
			after: []resource.PropertyMap{one[0], disk("scsi1", 10, true)},
		},
		"a disk more, which is not plugged": {
			changes: []string{"disks[1]"},
			current: map[string]string{"scsi0": whole, "hotplug": "network,usb"}, before: one,
			after: []resource.PropertyMap{one[0], disk("scsi1", 10, true)}, want: true,
		},
		"a disk more, which is plugged": {
			changes: []string{"disks[1]"},
			current: map[string]string{"scsi0": whole, "hotplug": "network,disk"}, before: one,
			after: []resource.PropertyMap{one[0], disk("scsi1", 10, true)},
		},
		"a SATA disk more": {
			changes: []string{"disks[1]"},
			current: map[string]string{"scsi0": whole}, before: one,
			after: []resource.PropertyMap{one[0], disk("sata1", 10, true)}, want: true,
		},
		"a SATA disk more, and no answer": {
			changes: []string{"disks[1]"},
			before:  one, after: []resource.PropertyMap{one[0], disk("sata1", 10, true)}, want: true,
		},
		"a SATA disk that is larger": {
			changes: []string{"disks[0].size"},
			current: map[string]string{"sata0": "tank:x,aio=io_uring,cache=none,discard=on,ssd=0,size=40G"},
			before:  []resource.PropertyMap{disk("sata0", 40, true)}, after: []resource.PropertyMap{disk("sata0", 50, true)},
		},
		"a virtio disk that is larger": {
			changes: []string{"disks[0].size"},
			current: map[string]string{"virtio0": "tank:x,aio=io_uring,cache=none,discard=on,iothread=0,size=40G"},
			before:  []resource.PropertyMap{disk("virtio0", 40, true)}, after: []resource.PropertyMap{disk("virtio0", 50, true)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, DisksPending(plan.Node{Template: c.template}, c.current, c.changes, c.before, c.after))
		})
	}
}

// TestAppliedChanges: what a clone has from its template is not changed, nor what the program ignores of disks.
func TestAppliedChanges(t *testing.T) {
	changes := []string{"disks[0].cache", "disks[0].size", "disks[1].cache", "tags"}

	assert.Equal(t, changes, AppliedChanges(plan.Node{}, changes))
	assert.Equal(t, []string{"disks[0].size", "disks[1].cache", "tags"},
		AppliedChanges(plan.Node{Template: "9000"}, changes))
	assert.Equal(t, []string{"disks[1]", "tags"}, AppliedChanges(plan.Node{}, []string{"disks[0].speed", "disks[1]", "tags"}),
		"an imported VM has no speed of its disks in its inputs")
}
