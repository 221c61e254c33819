package world_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/tests/lab/world"
)

// body serves a file without a network.
func body(text string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

func iso(name, text string) world.DownloadRequest {
	return world.DownloadRequest{URL: "http://x/" + name, Content: "iso", Filename: name, Fetch: body(text)}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestStoragesThatCannotBeUsed(t *testing.T) {
	w, _ := newWorld(t, func(o *world.Options) {
		o.Hosts[0].Storages = append(o.Hosts[0].Storages,
			world.Storage{Name: "old", Type: "dir", Content: []string{"iso", "images"}, Disabled: true},
			world.Storage{Name: "usb", Type: "dir", Content: []string{"iso", "images"}, Inactive: true},
			world.Storage{Name: "far", Type: "nfs", Content: []string{"iso"}, Inactive: true},
			world.Storage{Name: "pool", Type: "zfspool", Content: []string{"images"}, SizeGiB: 30},
			world.Storage{Name: "vg", Type: "lvm", Content: []string{"images"}, SizeGiB: 30},
			world.Storage{Name: "small", Type: "dir", Content: []string{"iso", "images"}, SizeGiB: 1},
		)
		o.Hosts[1].Storages = append(o.Hosts[1].Storages, world.Storage{Name: "far", Type: "nfs", Content: []string{"iso"}})
	})

	for storage, want := range map[string]string{
		"old": "storage 'old' is disabled",
		"usb": "unable to activate storage 'usb' - directory '/mnt/pve/usb' does not exist or is unreachable",
		"far": "storage 'far' is not online",
	} {
		_, err := w.Download(token, "pve1", storage, iso("a.iso", "x"))
		require.EqualError(t, err, want)
		_, err = w.Volumes(token, "pve1", storage, "", 0)
		require.EqualError(t, err, want)
	}

	upid, err := w.Download(token, "pve2", "far", iso("a.iso", "x"))
	done(t, w, upid, err)

	info, err := w.Storage("pve1", "usb")
	require.NoError(t, err)
	require.Equal(t, world.StorageInfo{
		Name: "usb", Type: "dir", Content: "iso,images", Path: "/mnt/pve/usb", Host: "pve1", Enabled: true,
	}, info)

	// What sets the whole size aside refuses a disk that is too large; what does not finds out later.
	for storage, want := range map[string]string{
		"pool": "unable to create VM 401 - zfs error: cannot create 'pool/vm-401-disk-0': out of space",
		"vg":   `unable to create VM 401 - lvcreate 'vg/vm-401-disk-0' error:   Volume group "vg" has insufficient free space`,
		"old":  "storage 'old' is disabled",
	} {
		upid, err := w.Create(token, "pve1",
			world.CreateRequest{VMID: 401, Conf: map[string]string{"scsi0": storage + ":40"}})
		if err == nil {
			require.Equal(t, want, ended(t, w, upid, nil))
		} else {
			require.EqualError(t, err, want)
		}
	}

	create(t, w, 402, "scsi0 tank:4000")

	full := iso("a.iso", "")
	full.Fetch = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(zeros{}), nil }
	upid, err = w.Download(token, "pve1", "small", full)
	require.Regexp(t,
		"^download failed: Cannot write to ‘/mnt/pve/small/template/iso/a.iso.tmp_dwnl.[0-9]+’ .No space left on device..$",
		ended(t, w, upid, err))
}

func TestSharedFiles(t *testing.T) {
	w, _ := newWorld(t)

	upid, err := w.Download(token, "pve1", "nas", iso("a.iso", "x"))
	done(t, w, upid, err)
	upid, err = w.Download(token, "pve2", "nas", iso("a.iso", "x"))
	require.Equal(t, "refusing to override existing file '/mnt/pve/nas/template/iso/a.iso'", ended(t, w, upid, err))
	require.Len(t, w.Downloads(), 1)

	list, err := w.Volumes(token, "pve2", "nas", "iso", 0)
	require.NoError(t, err)
	require.Equal(t, "nas:iso/a.iso", list[0].ID)
}

// A connection that breaks is no reason to give up, until it has broken too often.
func TestBrokenDownloads(t *testing.T) {
	w, _ := newWorld(t)

	opened := 0
	r := iso("a.iso", "")
	r.Fetch = func(context.Context) (io.ReadCloser, error) {
		opened++
		if opened == 1 {
			return nil, io.ErrUnexpectedEOF
		}

		text := io.Reader(strings.NewReader("four"))
		if opened == 2 {
			text = io.MultiReader(text, broken{})
		}

		return io.NopCloser(text), nil
	}

	upid, err := w.Download(token, "pve1", "local", r)
	done(t, w, upid, err)
	require.Equal(t, []world.Download{{Host: "pve1", URL: r.URL, Volume: "local:iso/a.iso", Bytes: 8}}, w.Downloads())

	r = iso("b.iso", "")
	r.Fetch = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(broken{}), nil }
	upid, err = w.Download(token, "pve1", "local", r)
	require.Equal(t, "download failed: exit code 4", ended(t, w, upid, err))
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A machine whose medium is gone does not start.
func TestAMediumThatIsGone(t *testing.T) {
	w, _ := newWorld(t)
	create(t, w, 401, "ide2 local:iso/talos.iso,media=cdrom")

	upid, err := w.DeleteVolume(token, "pve1", "local", "local:iso/talos.iso")
	done(t, w, upid, err)
	upid, err = w.Start(token, "pve1", 401)
	require.Equal(t, "volume 'local:iso/talos.iso' does not exist", ended(t, w, upid, err))

	require.NoError(t, update(w, 401, "ide2 none,media=cdrom"))
	upid, err = w.Start(token, "pve1", 401)
	done(t, w, upid, err)
}

// What may be seen of a storage depends on what it is.
func TestWhoSeesVolumes(t *testing.T) {
	w, _ := newWorld(t)
	w.Grant(token.ID, "/", "Datastore.Audit")

	list, err := w.Volumes(token, "pve1", "tank", "", 0)
	require.NoError(t, err)
	require.Empty(t, list)

	_, err = w.Volume(token, "pve1", "tank", "tank:base-9000-disk-0")
	require.EqualError(t, err, "Permission check failed (/vms/9000, VM.Config.Disk)")

	list, err = w.Volumes(token, "pve1", "local", "", 0)
	require.NoError(t, err)
	require.Len(t, list, 1)

	w.Grant(token.ID, "/vms", "VM.Config.Disk")
	list, err = w.Volumes(token, "pve1", "tank", "", 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
}
