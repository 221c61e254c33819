package world_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

// What becomes of a change to a running VM: it takes effect, waits for the next start, or is refused.
func TestChangesOfARunningVM(t *testing.T) {
	const now, later = "now", "later"

	for _, c := range []struct{ change, want string }{
		{"ide2 none,media=cdrom", now},
		{"cdrom none", now},
		{"ide2 local:iso/other.iso,media=cdrom", now},
		{"ide3 none,media=cdrom", later}, // a drive that was not there
		{"ide2 tank:1", "hotplug problem - unable to change media type"},
		{"scsi0 none,media=cdrom", "hotplug problem - unable to change media type"},
		{"scsi0 tank:vm-100-disk-0,backup=0,replicate=0,mbps_rd=10", now},
		{"scsi0 tank:vm-100-disk-0,cache=writeback", later},
		{"scsi0 tank:vm-100-disk-0,ssd=1", later},
		{"scsi1 tank:1", now},
		{"virtio1 tank:1", now},
		{"sata0 tank:1", later},
		{"efidisk0 tank:1,efitype=4m", later},
		{"net1 virtio=BC:24:11:00:00:02,bridge=vmbr0", now},
		{"net0 virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1", now},
		{"net1 virtio=BC:24:11:00:00:02,bridge=vmbr9", "hotplug problem - bridge 'vmbr9' does not exist"},
		{"net0 virtio=BC:24:11:00:00:01,bridge=vmbr9", "hotplug problem - bridge 'vmbr9' does not exist"},
		{"cores 4", later},
		{"memory 2048", later},
		{"balloon 512", now},
		{"balloon 0", later},
		{"agent enabled=1,type=isa", later},
		{"agent enabled=1,fstrim_cloned_disks=1", now},
		{"machine q35", later},
		{"numa 1", later},
		{"hostpci0 mapping=gpu", later},
		{"serial0 socket", later},
		{"smbios1 uuid=11111111-2222-4333-8444-555555555555", later},
		{"name other", now},
		{"onboot 1", now},
		{"startup order=1", now},
		{"tags a", now},
		{"protection 1", now},
		{"description text", now},
		{"cpuunits 200", now},
		{"tablet 0", now},
		{"hotplug disk", now},
		{"hotplug disk,cpu", later},
		{"boot order=scsi0", later},
	} {
		t.Run(c.change, func(t *testing.T) {
			w, _ := newWorld(t)
			require.NoError(t, w.AddFile("pve1", "local", "iso", "other.iso", world.MiB, nil))
			create(t, w, 100, "memory 1024", "balloon 1024", "agent enabled=1", "scsi0 tank:4",
				"ide2 local:iso/talos.iso,media=cdrom",
				"net0 virtio=BC:24:11:00:00:01,bridge=vmbr0", "boot order=scsi0;ide2;ide3;net0")

			upid, err := w.Start(token, "pve1", 100)
			done(t, w, upid, err)

			key, _, _ := strings.Cut(c.change, " ")
			if key == "cdrom" {
				key = "ide2"
			}

			err = update(w, 100, c.change)
			if c.want != now && c.want != later {
				var refusal *world.Error
				require.True(t, errors.As(err, &refusal), err)
				require.Equal(t, map[string]string{key: c.want}, refusal.Fields)
				require.Equal(t, 400, refusal.Code)

				items, err := w.Pending("pve1", 100)
				require.NoError(t, err)
				require.True(t, slices.ContainsFunc(items, func(item world.PendingItem) bool {
					return item.Key == key && item.Pending != nil
				}), "what was refused is left pending")

				return
			}

			require.NoError(t, err)

			current, err := w.Config("pve1", 100, true)
			require.NoError(t, err)

			if c.want == now {
				require.Equal(t, config(t, w, "pve1", 100)[key], current[key])
			} else {
				require.NotEqual(t, config(t, w, "pve1", 100)[key], current[key])
			}

			items, err := w.Pending("pve1", 100)
			require.NoError(t, err)

			for _, item := range items {
				if item.Key == key {
					require.Equal(t, c.want == later, item.Pending != nil)
				}
			}
		})
	}
}

func TestAnEjectedISOStaysOut(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "scsi0 tank:4", "ide2 local:iso/talos.iso,media=cdrom", "boot order=scsi0;ide2")

	power := func(call func(world.Caller, string, int) (string, error)) string {
		upid, err := call(token, "pve1", 100)

		return ended(t, w, upid, err)
	}

	require.Equal(t, "OK", power(w.Start))
	require.Len(t, f.last().Boot, 1)
	require.NoError(t, update(w, 100, "ide2 none,media=cdrom"))
	require.Equal(t, "none,media=cdrom", config(t, w, "pve1", 100)["ide2"])

	// Nothing boots from it any more, and the file is unused.
	require.Equal(t, "OK", power(w.Reset))
	require.Empty(t, f.last().Boot)

	upid, err := w.DeleteVolume(root, "pve1", "local", "iso/talos.iso")
	done(t, w, upid, err)
	require.Equal(t, "OK", power(w.Stop))
	require.Equal(t, "OK", power(w.Start))

	// Without the file a VM that still has it does not start.
	require.EqualError(t, update(w, 100, "ide2 local:iso/talos.iso,media=cdrom"),
		"volume 'local:iso/talos.iso' does not exist")
}

func TestADeletedISOKeepsAVMFromStarting(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "scsi0 tank:4", "ide2 local:iso/talos.iso,media=cdrom")

	upid, err := w.DeleteVolume(root, "pve1", "local", "iso/talos.iso")
	done(t, w, upid, err)

	upid, err = w.Start(token, "pve1", 100)
	require.Equal(t, "volume 'local:iso/talos.iso' does not exist", ended(t, w, upid, err))

	boots, _ := f.count()
	require.Zero(t, boots)
}

func TestTheHostsOwnDriveIsForThoseWithAConsole(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100)

	least := world.Caller{ID: "pulumi@pve!least"}
	w.AddToken(least.ID, "s")
	w.Grant(least.ID, "/vms", "VM.Config.CDROM")

	drive := world.UpdateRequest{Conf: map[string]string{"ide3": "file=cdrom,media=cdrom,"}}
	require.EqualError(t, w.Update(least, "pve1", 100, drive), "Permission check failed (/, Sys.Console)")
	w.Grant(least.ID, "/", "Sys.Console")
	require.NoError(t, w.Update(least, "pve1", 100, drive))
}
