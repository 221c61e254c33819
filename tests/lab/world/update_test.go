package world_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

func remove(w *world.World, id int, keys ...string) error {
	return w.Update(token, "pve1", id, world.UpdateRequest{Delete: keys})
}

func TestARunningMachineTakesWhatItCan(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "cores 2", "memory 1024", "scsi0 tank:1", "ide2 local:iso/talos.iso,media=cdrom",
		"net0 virtio=BC:24:11:00:00:01,bridge=vmbr0")

	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)

	require.NoError(t, update(w, 100, "cores 4", "name new", "scsi1 tank:2", "ide2 none,media=cdrom",
		"scsi0 tank:vm-100-disk-0,aio=threads"))

	// What is asked for is what one reads; what the machine has is what it runs with.
	conf := config(t, w, "pve1", 100)
	require.Equal(t, 4, conf["cores"])
	require.Equal(t, "tank:vm-100-disk-0,aio=threads,size=1G", conf["scsi0"])

	now, err := w.Config("pve1", 100, true)
	require.NoError(t, err)
	require.Equal(t, 2, now["cores"])
	require.Equal(t, "tank:vm-100-disk-0,size=1G", now["scsi0"])
	require.Equal(t, "new", now["name"])
	require.Equal(t, "tank:vm-100-disk-1,size=2G", now["scsi1"])
	require.Equal(t, "none,media=cdrom", now["ide2"])

	items, err := w.Pending("pve1", 100)
	require.NoError(t, err)
	require.Contains(t, items, world.PendingItem{Key: "cores", Value: 2, Pending: 4})

	// The guest's own restart changes nothing, one through Proxmox VE does.
	f.last().Reset()
	require.Eventually(t, func() bool { boots, _ := f.count(); return boots == 2 }, 5e9, 1e6)
	require.Equal(t, 2, f.last().Cores)

	reboot(t, w, "pve1", 100)
	require.Equal(t, 4, f.last().Cores)

	now, err = w.Config("pve1", 100, true)
	require.NoError(t, err)
	require.Equal(t, config(t, w, "pve1", 100), now)
}

func TestDisksThatLoseTheirPlace(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "scsi0 tank:1", "scsi1 tank:2", "ide2 tank:cloudinit", "boot order=scsi0;scsi1;ide2")

	require.NoError(t, remove(w, 100, "scsi1", "ide2", "net7", "serial1", "hostpci3", "usb0"))
	conf := config(t, w, "pve1", 100)
	require.Equal(t, "order=scsi0", conf["boot"])
	require.Equal(t, "tank:vm-100-disk-1", conf["unused0"])
	require.NotContains(t, conf, "scsi1")
	require.NotContains(t, conf, "ide2")
	require.NotContains(t, volumes(w), "tank:vm-100-cloudinit", "a cloud-init drive can be made again")

	// An unused disk can come back, elsewhere.
	require.NoError(t, update(w, 100, "virtio0 tank:vm-100-disk-1"))
	require.Equal(t, "tank:vm-100-disk-1,size=2G", config(t, w, "pve1", 100)["virtio0"])

	require.NoError(t, remove(w, 100, "virtio0", "unused0"))
	require.NoError(t, remove(w, 100, "unused0"))
	require.NotContains(t, volumes(w), "tank:vm-100-disk-1")

	require.NoError(t, w.Update(token, "pve1", 100, world.UpdateRequest{Delete: []string{"scsi0"}, Force: true}))
	require.NotContains(t, config(t, w, "pve1", 100), "unused0")
	require.NotContains(t, volumes(w), "tank:vm-100-disk-0")
}

func TestADiskThatWasOnlyPending(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "scsi0 tank:1")
	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)

	// SATA disks cannot be plugged into a running machine.
	require.NoError(t, update(w, 100, "sata0 tank:2"))
	require.Equal(t, "tank:vm-100-disk-1,size=2G", config(t, w, "pve1", 100)["sata0"])

	require.NoError(t, remove(w, 100, "sata0"))
	conf := config(t, w, "pve1", 100)
	require.NotContains(t, conf, "sata0")
	require.Equal(t, "tank:vm-100-disk-1", conf["unused0"])

	// A pending change of options keeps the size that it was made with, until the next change of the drive looks at the
	// storage.
	require.NoError(t, update(w, 100, "scsi0 tank:vm-100-disk-0,aio=threads"))
	upid, err = w.Resize(token, "pve1", 100, world.ResizeRequest{Disk: "scsi0", Size: "5G"})
	done(t, w, upid, err)
	require.Equal(t, "tank:vm-100-disk-0,aio=threads,size=1G", config(t, w, "pve1", 100)["scsi0"])

	reboot(t, w, "pve1", 100)
	upid, err = w.Resize(token, "pve1", 100, world.ResizeRequest{Disk: "scsi0", Size: "5G"})
	done(t, w, upid, err)
	require.Equal(t, "tank:vm-100-disk-0,aio=threads,size=1G", config(t, w, "pve1", 100)["scsi0"])

	require.NoError(t, update(w, 100, "scsi0 tank:vm-100-disk-0,aio=native"))
	reboot(t, w, "pve1", 100)

	conf = config(t, w, "pve1", 100)
	require.Equal(t, "tank:vm-100-disk-0,aio=native,size=5G", conf["scsi0"])
	require.NotContains(t, conf, "unused1")
}

func TestACloudInitDriveMoves(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "scsi0 tank:1", "ide2 tank:cloudinit", "boot order=scsi0")

	err := update(w, 100, "ide0 tank:cloudinit")
	require.EqualError(t, err, "ide0 - cloud-init drive is already attached at 'ide2'")

	require.NoError(t, remove(w, 100, "ide2"))
	require.NoError(t, update(w, 100, "ide0 file=tank:cloudinit,media=cdrom,"))

	conf := config(t, w, "pve1", 100)
	require.Equal(t, "tank:vm-100-cloudinit,media=cdrom", conf["ide0"])
	require.Equal(t, "order=scsi0;ide0", conf["boot"], "a new CD-ROM is bootable")
}

func TestUpdatesThatAreRefused(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "memory 1024", "scsi0 tank:1")
	before := w.Snapshot()

	require.EqualError(t, update(w, 100), "no options specified")
	require.EqualError(t, update(w, 100, "balloon 2048"), "balloon value too large (must be smaller than assigned memory)")
	require.EqualError(t, update(w, 100, "boot order=scsi7"), "invalid bootorder: device 'scsi7' does not exist'")
	require.EqualError(t, update(w, 100, "scsi1 gone:1"), "storage 'gone' does not exist")
	require.EqualError(t, remove(w, 100, "colour"), "Parameter verification failed. (delete: unknown option 'colour')")

	err := w.Update(token, "pve1", 100, world.UpdateRequest{
		Conf:   map[string]string{"cores": "2"},
		Delete: []string{"cores"},
	})
	require.EqualError(t, err,
		"Parameter verification failed. (delete: you can't use '-cores' and -delete cores' at the same time)")

	err = w.Update(token, "pve1", 100, world.UpdateRequest{Conf: map[string]string{"cores": "2"}, Digest: "old"})
	require.EqualError(t, err, "checksum mismatch (file change by other user?)")

	require.NoError(t, w.SetLock(100, "backup"))
	require.EqualError(t, update(w, 100, "cores 2"), "VM is locked (backup)")
	upid, err := w.Destroy(token, "pve1", 100, world.DestroyRequest{Unreferenced: true})
	require.Equal(t, "VM is locked (backup)", ended(t, w, upid, err))
	require.NoError(t, w.SetLock(100, ""))

	require.Equal(t, before, w.Snapshot())
	digest := config(t, w, "pve1", 100)["digest"].(string)
	err = w.Update(token, "pve1", 100, world.UpdateRequest{Conf: map[string]string{"cores": "2"}, Digest: digest})
	require.NoError(t, err)
}

func TestAProtectedVMKeepsItsDisks(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 100, "protection 1", "scsi0 tank:1")

	require.EqualError(t, remove(w, 100, "scsi0"), "can't remove drive 'scsi0' - protection mode enabled")
	_, err := w.Destroy(token, "pve1", 100, world.DestroyRequest{Unreferenced: true})
	require.EqualError(t, err, "can't remove VM 100 - protection mode enabled")
}

func TestResize(t *testing.T) {
	w, f := newWorld(t)
	create(t, w, 100, "scsi0 tank:10,ssd=1", "ide2 none,media=cdrom")
	upid, err := w.Start(token, "pve1", 100)
	done(t, w, upid, err)

	for _, c := range []struct {
		disk, size, want string
		result           string
	}{
		{"scsi0", "21474836480", "OK", "20G"},
		{"scsi0", "40G", "OK", "40G"},
		{"scsi0", "+512M", "OK", "41472M"},
		{"scsi0", "1G", "shrinking disks is not supported", "41472M"},
		{"scsi1", "1G", "disk 'scsi1' does not exist", "41472M"},
		{"ide2", "1G", "you can't resize a cdrom", "41472M"},
	} {
		upid, err := w.Resize(token, "pve1", 100, world.ResizeRequest{Disk: c.disk, Size: c.size})
		require.Equal(t, c.want, ended(t, w, upid, err))
		require.Equal(t, "tank:vm-100-disk-0,size="+c.result+",ssd=1", config(t, w, "pve1", 100)["scsi0"])
	}

	require.Equal(t, 41472*world.MiB, f.last().Disks[0].Size(), "the running machine sees it")

	_, err = w.Resize(token, "pve1", 100, world.ResizeRequest{Disk: "scsi0", Size: "big"})
	require.EqualError(t, err, "Parameter verification failed. (size: value does not match the regex pattern)")
}

func TestMoveDisk(t *testing.T) {
	w, _ := newWorld(t)
	clone(t, w, world.CloneRequest{NewID: 100, Full: yes()})

	_, err := w.MoveDisk(token, "pve1", 100, world.MoveRequest{Disk: "scsi0", Storage: "tank"})
	require.EqualError(t, err, "you can't move to the same storage with same format")

	upid, err := w.MoveDisk(token, "pve1", 100,
		world.MoveRequest{Disk: "scsi0", Storage: "local", Format: "qcow2", Delete: true})
	done(t, w, upid, err)
	require.Equal(t, "local:100/vm-100-disk-0.qcow2,size=10G", config(t, w, "pve1", 100)["scsi0"])
	require.NotContains(t, volumes(w), "tank:vm-100-disk-0")

	upid, err = w.MoveDisk(token, "pve1", 100, world.MoveRequest{Disk: "scsi0", Storage: "tank"})
	done(t, w, upid, err)
	require.Equal(t, "local:100/vm-100-disk-0.qcow2", config(t, w, "pve1", 100)["unused0"])
}

func TestMigrate(t *testing.T) {
	w, f := newWorld(t)
	clone(t, w, world.CloneRequest{NewID: 100, Full: yes()})

	_, err := w.Migrate(token, "pve1", 100, world.MigrateRequest{Target: "pve1"})
	require.EqualError(t, err, "Parameter verification failed. (target: target is local node.)")

	upid, err := w.Migrate(token, "pve1", 100, world.MigrateRequest{Target: "pve2"})
	done(t, w, upid, err)
	require.Equal(t, "tank:vm-100-disk-0,size=10G", config(t, w, "pve2", 100)["scsi0"])

	upid, err = w.Start(token, "pve2", 100)
	done(t, w, upid, err)
	require.Equal(t, image("talos"), f.last().Boot[0].Disk.Content())

	_, err = w.Migrate(token, "pve2", 100, world.MigrateRequest{Target: "pve1"})
	require.EqualError(t, err, "can't migrate running VM without --online")

	upid, err = w.Migrate(token, "pve2", 100, world.MigrateRequest{Target: "pve1", Online: true})
	require.Equal(t, "migration aborted", ended(t, w, upid, err))
	require.Contains(t, log(t, w, "pve2", upid), "ERROR: migration aborted: "+
		"can't live migrate attached local disks without with-local-disks option")

	upid, err = w.Migrate(token, "pve2", 100,
		world.MigrateRequest{Target: "pve1", Online: true, WithLocalDisks: true, TargetStorage: "zfs"})
	done(t, w, upid, err)
	require.Equal(t, "zfs:vm-100-disk-0,size=10G", config(t, w, "pve1", 100)["scsi0"])

	boots, kills := f.count()
	require.Equal(t, []int{1, 0}, []int{boots, kills}, "the machine never stopped")

	// A host without the storage is refused before anything moves.
	before := w.Snapshot()
	upid, err = w.Migrate(token, "pve1", 100, world.MigrateRequest{Target: "pve2", Online: true, WithLocalDisks: true})
	require.Equal(t, "migration aborted", ended(t, w, upid, err))
	require.Contains(t, log(t, w, "pve1", upid), "ERROR: migration aborted: storage 'zfs' is not available on node 'pve2'")
	require.Equal(t, before, w.Snapshot())
}
