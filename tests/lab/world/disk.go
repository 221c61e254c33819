package world

import (
	"slices"
	"strconv"
	"strings"
)

// ResizeRequest changes the size of a disk: "40G", "+10G", or bytes.
type ResizeRequest struct {
	Disk, Size, Digest string
}

// Resize grows a disk and returns the task.
func (w *World) Resize(c Caller, host string, id int, r ResizeRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.host(host); err != nil {
		return "", err
	}

	if !isDrive(r.Disk) {
		return "", Invalid("disk", "value '%s' does not have a value in the enumeration 'ide0, ..., virtio15'", r.Disk)
	}

	amount, more := strings.CutPrefix(r.Size, "+")

	size, ok := parseSize(amount)
	if !ok {
		return "", Invalid("size", `value does not match the regex pattern`)
	}

	return w.start(c, job{node: host, kind: "resize", id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(host, id, func(v *vm) error {
			vol, err := w.resizable(c, v, r, size, more)
			if err != nil || !more && size == vol.bytes() {
				return err
			}

			if err := t.pass("resize", w.latencies.Resize, v); err != nil {
				return err
			}

			w.mu.Lock()
			defer w.mu.Unlock()

			d, err := parseDrive(r.Disk, v.conf[r.Disk])
			if err != nil {
				return err
			}

			if vol, err = w.volume(host, d.file()); err != nil {
				return err
			}

			if more {
				size += vol.bytes()
			}

			if err := w.room(host, vol.storage, vol.id, size-vol.bytes()); err != nil {
				return err
			}

			vol.disk.Resize(size)

			// Only what the drive is now learns of the size. A change of the drive that waits for a start keeps the size that it
			// was made with, and brings it back into the configuration (qemu-server: resize_vm, vmconfig_apply_pending), until
			// the next change reads it from the storage.
			d.properties["size"] = formatSize(size)
			v.conf[r.Disk] = d.String()

			return nil
		})
	}}), nil
}

func (w *World) resizable(c Caller, v *vm, r ResizeRequest, size int64, more bool) (*volume, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if r.Digest != "" && r.Digest != v.digest() {
		return nil, failf("checksum mismatch (file change by other user?)")
	}

	value, ok := v.conf[r.Disk]
	if !ok {
		return nil, failf("disk '%s' does not exist", r.Disk)
	}

	d, err := parseDrive(r.Disk, value)
	if err != nil {
		return nil, err
	}

	if d.cdrom() {
		return nil, failf("you can't resize a cdrom")
	}

	vol, err := w.volume(v.host, d.file())
	if err != nil {
		return nil, err
	}

	if err := w.need(c, "/storage/"+vol.storage.Name, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}

	if !more && size < vol.bytes() {
		return nil, failf("shrinking disks is not supported")
	}

	return vol, nil
}

// Disks are all disks that a VM can have, in Proxmox VE's order.
var Disks = slices.Concat(numberedDisks("ide", 4), numberedDisks("scsi", 31), numberedDisks("virtio", 16), numberedDisks("sata", 6),
	[]string{"efidisk0", "tpmstate0"}, numberedDisks("unused", 256))

func numberedDisks(kind string, count int) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = kind + strconv.Itoa(i)
	}

	return all
}

// MoveRequest moves a disk to another storage.
type MoveRequest struct {
	Disk, Storage, Format, Digest string
	// Delete removes the original; without it it stays as an unused disk.
	Delete bool
}

// MoveDisk moves a disk to another storage and returns the task.
func (w *World) MoveDisk(c Caller, host string, id int, r MoveRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.host(host); err != nil {
		return "", err
	}

	v, err := w.find(host, id)
	if err != nil {
		return "", err
	}

	if err := v.unlocked(); err != nil {
		return "", err
	}

	if _, _, _, err := w.movable(c, v, r); err != nil {
		return "", err
	}

	return w.start(c, job{node: host, kind: "qmmove", id: strconv.Itoa(id), work: func(t *task) error {
		return t.withVM(host, id, func(v *vm) error {
			if err := t.pass("move disk", w.latencies.MoveDisk, v); err != nil {
				return err
			}

			w.mu.Lock()
			defer w.mu.Unlock()

			d, vol, s, err := w.movable(c, v, r)
			if err != nil {
				return err
			}

			made, err := w.copyImage(vol, host, s, v.id, r.Disk, r.Format)
			if err != nil {
				return failf("storage migration failed: %s", err)
			}

			// A running machine keeps the disk it has: it writes to what the copy now is.
			made.disk = vol.disk
			if v.run == nil {
				made.disk = vol.disk.Clone(made.id)
			}

			if v.template() {
				w.makeBase(made)
			}

			d.properties["file"], d.properties["size"] = made.id, formatSize(made.bytes())
			v.conf[r.Disk] = d.String()

			if r.Delete {
				w.free(vol)
			} else {
				w.addUnused(v, vol)
			}

			return nil
		})
	}}), nil
}

func (w *World) movable(c Caller, v *vm, r MoveRequest) (driveSpec, *volume, *Storage, error) {
	if r.Digest != "" && r.Digest != v.digest() {
		return driveSpec{}, nil, nil, failf("checksum mismatch (file change by other user?)")
	}

	value, ok := v.conf[r.Disk]
	if !ok {
		return driveSpec{}, nil, nil, failf("disk '%s' does not exist", r.Disk)
	}

	d, err := parseDrive(r.Disk, value)
	if err != nil {
		return d, nil, nil, err
	}

	if d.cdrom() && !d.cloudInit() {
		return d, nil, nil, failf("you can't move a cdrom")
	}

	vol, err := w.volume(v.host, d.file())
	if err != nil {
		return d, nil, nil, err
	}

	if vol.storage.Name == r.Storage && (r.Format == "" || r.Format == vol.format) {
		return d, nil, nil, failf("you can't move to the same storage with same format")
	}

	s, err := w.imageStorage(v.host, r.Storage)
	if err != nil {
		return d, nil, nil, err
	}

	return d, vol, s, w.need(c, "/storage/"+r.Storage, "Datastore.AllocateSpace")
}
