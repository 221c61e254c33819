package world_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

func TestACloneIsTheSameAndAnother(t *testing.T) {
	w, f := newWorld(t)
	template := config(t, w, "pve1", 9000)

	clone(t, w, world.CloneRequest{NewID: 401, Name: "cp-1", Description: "a node", Full: yes()})
	conf := config(t, w, "pve1", 401)

	require.Equal(t, "cp-1", conf["name"])
	require.Equal(t, "a node", conf["description"])
	require.Equal(t, 2, conf["cores"])
	require.Equal(t, "2048", conf["memory"])
	require.NotContains(t, conf, "template")
	require.NotContains(t, conf, "lock")

	for _, key := range []string{"net0", "smbios1", "vmgenid", "digest"} {
		require.NotEqual(t, template[key], conf[key], key)
		require.NotEmpty(t, conf[key], key)
	}

	// The copy has the content, and keeps it to itself.
	upid, err := w.Start(token, "pve1", 401)
	done(t, w, upid, err)

	disk := f.last().Boot[0].Disk
	require.Equal(t, image("talos"), disk.Content())
	disk.Write(image("installed"))

	clone(t, w, world.CloneRequest{NewID: 402})
	require.Equal(t, "Copy-of-VM-base", config(t, w, "pve1", 402)["name"])

	upid, err = w.Start(token, "pve1", 402)
	done(t, w, upid, err)
	require.Equal(t, image("talos"), f.last().Boot[0].Disk.Content())
}

func TestVolumeNames(t *testing.T) {
	for _, c := range []struct {
		name    string
		storage string // of the template
		request world.CloneRequest
		base    string
		want    string
	}{
		{"thin pool, full", "tank", world.CloneRequest{Full: yes()}, "tank:base-9001-disk-0", "tank:vm-401-disk-0"},
		{"thin pool, linked", "tank", world.CloneRequest{}, "tank:base-9001-disk-0", "tank:vm-401-disk-0"},
		{"zfs, linked", "zfs", world.CloneRequest{Full: no()}, "zfs:base-9001-disk-0", "zfs:base-9001-disk-0/vm-401-disk-0"},
		{
			"directory, full", "local",
			world.CloneRequest{Full: yes()},
			"local:9001/base-9001-disk-0.raw",
			"local:401/vm-401-disk-0.raw",
		},
		{
			"directory, linked", "local",
			world.CloneRequest{},
			"local:9001/base-9001-disk-0.raw", "local:9001/base-9001-disk-0.raw/401/vm-401-disk-0.raw",
		},
		{
			"from thin pool to directory", "tank",
			world.CloneRequest{Full: yes(), Storage: "local", Format: "qcow2"},
			"tank:base-9001-disk-0", "local:401/vm-401-disk-0.qcow2",
		},
		{
			"from directory to zfs", "local",
			world.CloneRequest{Full: yes(), Storage: "zfs", Format: "qcow2"},
			"local:9001/base-9001-disk-0.raw", "zfs:vm-401-disk-0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, _ := newWorld(t)
			require.NoError(t, w.AddTemplate(world.Template{
				Name: "t", VMID: 9001, Host: "pve1", Storage: c.storage, DiskGiB: 1,
				Interface: "virtio0", DiskOptions: "iothread=1",
			}))

			c.request.NewID = 401
			upid, err := w.Clone(token, "pve1", 9001, c.request)
			done(t, w, upid, err)

			require.Equal(t, c.base+",iothread=1,size=1G", config(t, w, "pve1", 9001)["virtio0"])
			require.Equal(t, c.want+",iothread=1,size=1G", config(t, w, "pve1", 401)["virtio0"])
			require.Contains(t, volumes(w), c.want)
		})
	}
}

// A linked clone keeps what the template says of itself, as a full one does, unless the request says otherwise.
func TestACloneKeepsTagsAndDescription(t *testing.T) {
	w, _ := newWorld(t)
	require.NoError(t, update(w, 9000, "tags base;talos", "description made by hand"))

	for id, full := range map[int]*bool{401: no(), 402: yes()} {
		clone(t, w, world.CloneRequest{NewID: id, Full: full})
		require.Equal(t, "base;talos", config(t, w, "pve1", id)["tags"])
		require.Equal(t, "made by hand", config(t, w, "pve1", id)["description"])
	}

	clone(t, w, world.CloneRequest{NewID: 403, Full: no(), Description: "a node"})
	require.Equal(t, "a node", config(t, w, "pve1", 403)["description"])
}

func TestALinkedCloneHoldsItsTemplate(t *testing.T) {
	w, _ := newWorld(t)
	clone(t, w, world.CloneRequest{NewID: 401, Full: no()})

	upid, err := w.Destroy(token, "pve1", 9000, world.DestroyRequest{Unreferenced: true})
	require.Equal(t, "base volume 'tank:base-9000-disk-0' is still in use by linked cloned", ended(t, w, upid, err))

	upid, err = w.Destroy(token, "pve1", 401, world.DestroyRequest{Unreferenced: true})
	done(t, w, upid, err)
	upid, err = w.Destroy(token, "pve1", 9000, world.DestroyRequest{Unreferenced: true})
	done(t, w, upid, err)
	require.Equal(t, []string{"local:iso/talos.iso"}, volumes(w))
}

func TestACloneIsLockedWhileItIsMade(t *testing.T) {
	w, _ := newWorld(t, func(o *world.Options) { o.Latencies.Clone = 100 * time.Millisecond })

	upid, err := w.Clone(token, "pve1", 9000, world.CloneRequest{NewID: 401, Name: "cp-1"})
	require.NoError(t, err)

	v, err := w.VM("pve1", 401)
	require.NoError(t, err)
	require.Equal(t, "clone", v.Lock)
	require.EqualError(t, update(w, 401, "cores 2"), "VM is locked (clone)")

	_, err = w.Clone(token, "pve1", 9000, world.CloneRequest{NewID: 401})
	require.EqualError(t, err, "unable to create VM 401: config file already exists")

	_, err = w.Clone(token, "pve1", 401, world.CloneRequest{NewID: 402})
	require.EqualError(t, err, "VM is locked (clone)")

	start, err := w.Start(token, "pve1", 401)
	require.Equal(t, "VM is locked (clone)", ended(t, w, start, err))

	done(t, w, upid, nil)
	require.NoError(t, update(w, 401, "cores 2"))
}

func TestClonesThatAreRefused(t *testing.T) {
	w, _ := newWorld(t)
	require.NoError(t, w.AddTemplate(world.Template{
		Name: "raw", VMID: 9002, Host: "pve1", Storage: "tank", DiskGiB: 1,
		Unfinalised: true,
	}))
	require.NoError(t, w.AddTemplate(world.Template{
		Name: "elsewhere", VMID: 300, Host: "pve2", Storage: "tank",
		DiskGiB: 1,
	}))

	for _, c := range []struct {
		name    string
		source  int
		request world.CloneRequest
		want    string
	}{
		{
			"taken elsewhere", 9000,
			world.CloneRequest{NewID: 300},
			"unable to create VM 300: VM 300 already exists on node 'pve2'",
		},
		{
			"linked with storage", 9000,
			world.CloneRequest{NewID: 1, Full: no(), Storage: "zfs"},
			"parameter 'storage' not allowed for linked clones",
		},
		{
			"linked with format", 9000,
			world.CloneRequest{NewID: 1, Full: no(), Format: "raw"},
			"parameter 'format' not allowed for linked clones",
		},
		{
			"linked to a VM", 9002,
			world.CloneRequest{NewID: 1, Full: no()},
			"Linked clone feature is not supported for 'tank:vm-9002-disk-0' (scsi0)",
		},
		{
			"no such storage", 9000,
			world.CloneRequest{NewID: 1, Full: yes(), Storage: "gone"},
			"storage 'gone' does not exist",
		},
		{"no such host", 9000, world.CloneRequest{NewID: 1, Target: "pve9"}, "no such cluster node 'pve9'"},
		{
			"local storage to another host", 9000,
			world.CloneRequest{NewID: 1, Target: "pve2"},
			"can't clone VM to node 'pve2' (VM uses local storage)",
		},
		{
			"target storage not shared", 9000,
			world.CloneRequest{NewID: 1, Full: yes(), Target: "pve2", Storage: "tank"},
			"can't clone to non-shared storage 'tank'",
		},
		{
			"bad name", 9000,
			world.CloneRequest{NewID: 1, Name: "a_b"},
			"Parameter verification failed. (name: invalid format - value does not look like a valid DNS name)",
		},
		{"no such pool", 9000, world.CloneRequest{NewID: 1, Pool: "p"}, "Permission check failed (pool 'p' does not exist)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.Snapshot()
			_, err := w.Clone(token, "pve1", c.source, c.request)
			require.EqualError(t, err, c.want)
			require.Equal(t, before, w.Snapshot())
		})
	}
}

func TestClonesOnSharedStorageGoAnywhere(t *testing.T) {
	w, _ := newWorld(t)
	require.NoError(t, w.AddTemplate(world.Template{Name: "shared", VMID: 9003, Host: "pve1", Storage: "nas", DiskGiB: 1}))
	require.NoError(t, w.CreatePool("talos", ""))

	upid, err := w.Clone(token, "pve1", 9003, world.CloneRequest{NewID: 401, Target: "pve2", Pool: "talos", Full: yes()})
	done(t, w, upid, err)

	v, err := w.VM("pve2", 401)
	require.NoError(t, err)
	require.Equal(t, "talos", v.Pool)

	upid, err = w.Start(token, "pve2", 401)
	done(t, w, upid, err)
}

func TestTheCloudInitDriveOfACloneIsItsOwn(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 9010, "name t", "scsi0 tank:1", "ide2 tank:cloudinit", "ide0 local:iso/talos.iso,media=cdrom")
	upid, err := w.ConvertToTemplate(token, "pve1", 9010)
	done(t, w, upid, err)

	upid, err = w.Clone(token, "pve1", 9010, world.CloneRequest{NewID: 401})
	done(t, w, upid, err)

	conf := config(t, w, "pve1", 401)
	require.Equal(t, "tank:vm-401-cloudinit,media=cdrom,size=4M", conf["ide2"])
	require.Equal(t, "local:iso/talos.iso,media=cdrom,size=100M", conf["ide0"])
}

func TestATemplateDoesNotRun(t *testing.T) {
	w, _ := newWorld(t)

	upid, err := w.Start(token, "pve1", 9000)
	require.Equal(t, "you can't start a vm if it's a template", ended(t, w, upid, err))

	_, err = w.ConvertToTemplate(token, "pve1", 9000)
	require.EqualError(t, err, "you can't convert a template to a template")

	create(t, w, 401, "scsi0 tank:1")
	upid, err = w.Start(token, "pve1", 401)
	done(t, w, upid, err)
	_, err = w.ConvertToTemplate(token, "pve1", 401)
	require.EqualError(t, err, "you can't convert a VM to template if VM is running")

	upid, err = w.Stop(token, "pve1", 401)
	done(t, w, upid, err)
	upid, err = w.ConvertToTemplate(token, "pve1", 401)
	done(t, w, upid, err)
	require.Equal(t, "tank:base-401-disk-0,size=1G", config(t, w, "pve1", 401)["scsi0"])
	require.Contains(t, volumes(w), "tank:base-401-disk-0")
}
