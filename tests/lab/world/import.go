package world

import (
	"bytes"
	"context"
	"encoding/binary"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
)

// VolumePath is where a volume is on its host (pvesm path).
func (w *World) VolumePath(host, id string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.volume(host, id)
	if err != nil {
		return "", err
	}

	return v.path(), nil
}

// ImportRequest makes a disk of an image file.
type ImportRequest struct {
	VMID int
	// Source is the path of the image.
	Source, Storage, Format string
}

// Imported is a disk that was made of an image: the name under which the VM keeps it, and its volume.
type Imported struct {
	Name, Volume string
	// Format is what the storage made of the format that was asked for.
	Format string
}

// ImportDisk is what root does with qm importdisk (qemu-server: CLI/qm.pm, ImportDisk.pm).
func (w *World) ImportDisk(ctx context.Context, host string, r ImportRequest) (Imported, error) {
	v, err := w.check(host, r.VMID)
	if err != nil {
		return Imported{}, err
	}

	w.mu.Lock()
	after := []*timeline.Span{v.span}

	if source := w.file(host, r.Source); source != nil {
		after = append(after, source.span)
	}
	w.mu.Unlock()

	span, err := w.timeline.Wait(ctx, "import", v.subject(), w.latencies.Import, after...)
	if err != nil {
		return Imported{}, err
	}

	release, err := w.hold(ctx, v)
	if err != nil {
		return Imported{}, err
	}
	defer release()

	w.mu.Lock()
	defer w.mu.Unlock()

	if err := v.unlocked(); err != nil {
		return Imported{}, err
	}

	source := w.file(host, r.Source)
	if source == nil {
		return Imported{}, failf("%s: non-existent or non-regular file", r.Source)
	}

	s, err := w.storage(host, r.Storage)
	if err != nil {
		return Imported{}, err
	}

	if !s.holds("images") {
		return Imported{}, failf("storage %s does not support vm images", r.Storage)
	}

	if err := s.activate(host); err != nil {
		return Imported{}, err
	}

	if !s.files() {
		r.Format = "raw"
	}

	vol, err := w.image(host, s, v.id, r.Format, machine.NewDisk("", "", source.virtualSize(), source.copyContent()))
	if err != nil {
		return Imported{}, err
	}

	v.span = span

	return Imported{Name: w.addUnused(v, vol), Volume: vol.id, Format: vol.format}, nil
}

// file finds a file by its path on a host.
func (w *World) file(host, path string) *volume {
	for _, v := range w.volumes {
		if v.disk == nil && (v.host == "" || v.host == host) && v.path() == path {
			return v
		}
	}

	return nil
}

// virtualSize is that of the disk in an image: what QEMU's own format says, or the size of the file.
func (v *volume) virtualSize() int64 {
	f, ok := v.content.(*machine.File)
	if ok && len(f.Head) >= 32 && bytes.HasPrefix(f.Head, []byte("QFI\xfb")) {
		return int64(binary.BigEndian.Uint64(f.Head[24:]))
	}

	return v.bytes()
}
