package world

import (
	"fmt"
	"strconv"

	"talos-proxmox/tests/lab/machine"
)

// CloneRequest asks for a copy of a VM.
type CloneRequest struct {
	NewID       int
	Name        string
	Description string
	// Full asks for a copy of the disks instead of linked ones; nil: linked from templates, full from VMs.
	Full *bool
	// Storage is where the copies go; empty: where the originals are.
	Storage string
	Format  string
	// Target is the host of the clone; empty: the original's.
	Target string
	Pool   string
}

// Clone copies a VM and returns the task. While it runs the clone is there, and locked.
func (w *World) Clone(c Caller, host string, id int, r CloneRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, err := w.host(host); err != nil {
		return "", err
	}

	if r.Target == host {
		r.Target = ""
	}

	source, err := w.findProcess(host, id)
	if err != nil {
		return "", err
	}

	full := !source.template()
	if r.Full != nil {
		full = *r.Full
	}

	if err := w.mayClone(c, source, r, full); err != nil {
		return "", err
	}

	v := newVM(r.NewID, host, map[string]string{"lock": "clone", "name": r.Name})
	w.vms[v.id] = v

	return w.start(c, job{
		node: host, kind: "qmclone", id: strconv.Itoa(id),
		undo: func() { w.forget(v) },
		work: func(t *task) error {
			release, err := w.hold(t.ctx, v)
			if err != nil {
				return err
			}
			defer release()

			t.log("creating a clone of VM %d with ID %d", id, v.id)

			if err := t.pass("clone", w.latencies.Clone, v); err != nil {
				return err
			}

			if err := w.copyVM(t, source, v, r, full); err != nil {
				return failf("clone failed: %s", err)
			}

			return nil
		},
	}), nil
}

// mayClone makes the checks that Proxmox VE makes before it starts the task.
func (w *World) mayClone(c Caller, source *vm, r CloneRequest, full bool) error {
	if r.Name != "" {
		if err := ValidName("name", r.Name); err != nil {
			return err
		}
	}

	if err := w.mayCreate(c, r.NewID, r.Pool); err != nil {
		return err
	}

	if r.Target != "" {
		if _, err := w.host(r.Target); err != nil {
			return failf("no such cluster node '%s'", r.Target)
		}
	}

	if err := w.mayCloneTo(r); err != nil {
		return err
	}

	if err := source.unlocked(); err != nil {
		return err
	}

	if !full && r.Storage != "" {
		return failf("parameter 'storage' not allowed for linked clones")
	}

	if !full && r.Format != "" {
		return failf("parameter 'format' not allowed for linked clones")
	}

	for _, key := range sortedKeys(source.conf) {
		if err := w.mayCloneSetting(c, source, key, r, full); err != nil {
			return err
		}
	}

	if other, taken := w.vms[r.NewID]; taken {
		if other.host == source.host {
			return failf("unable to create VM %d: config file already exists", r.NewID)
		}

		return failf("unable to create VM %d: VM %d already exists on node '%s'", r.NewID, r.NewID, other.host)
	}

	return nil
}

// mayCloneTo checks the storage that the copies go to.
func (w *World) mayCloneTo(r CloneRequest) error {
	if r.Storage == "" {
		return nil
	}

	for _, s := range w.storages {
		if s.Name != r.Storage {
			continue
		}

		if !s.holds("images") {
			return Invalid("storage", "storage '%s' does not support vm images", r.Storage)
		}

		if r.Target != "" && !s.Shared {
			return failf("can't clone to non-shared storage '%s'", r.Storage)
		}

		return nil
	}

	return failf("storage '%s' does not exist", r.Storage)
}

func (w *World) mayCloneSetting(c Caller, source *vm, key string, r CloneRequest, full bool) error {
	if isNetwork(key) {
		p, err := parseNetwork(key, source.conf[key])
		if err != nil || p["bridge"] == "" || c.ID == superuser {
			return err
		}

		return w.need(c, p.vnet(), "SDN.Use")
	}

	if !isDrive(key) {
		return w.mayUseDevice(c, key, source.conf[key])
	}

	d, err := parseDrive(key, source.conf[key])
	if err != nil || d.cdrom() && !d.cloudInit() {
		return err
	}

	vol, err := w.volume(source.host, d.file())
	if err != nil {
		return err
	}

	if r.Target != "" && !vol.storage.Shared {
		return failf("can't clone VM to node '%s' (VM uses local storage)", r.Target)
	}

	if !full && !d.cloudInit() && key != "tpmstate0" && !(vol.storage.linked() && source.template()) {
		return failf("Linked clone feature is not supported for '%s' (%s)", vol.id, key)
	}

	target := vol.storage.Name
	if r.Storage != "" {
		target = r.Storage
	}

	if _, err := w.imageStorage(source.host, target); err != nil {
		return err
	}

	return w.need(c, "/storage/"+target, "Datastore.AllocateSpace")
}

// copyVM fills the clone: the same settings with addresses and identity of its own, and copies of the disks.
func (w *World) copyVM(t *task, source, v *vm, r CloneRequest, full bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	conf := map[string]string{}

	for _, key := range sortedKeys(source.conf) {
		value := source.conf[key]

		switch {
		case key == "template" || key == "lock" || key == "parent" || len(key) > 6 && key[:6] == "unused":
			continue
		case isNetwork(key):
			p, err := parseNetwork(key, value)
			if err != nil {
				return err
			}

			p["macaddr"] = w.newMAC()
			value = printNetwork(p)
		case isDrive(key):
			d, err := parseDrive(key, value)
			if err != nil {
				return err
			}

			if d, err = w.copyDrive(source, v, d, r, full); err != nil {
				return err
			}

			value = d.String()
		case key == "smbios1":
			p, _ := parseProperties(value, "uuid")
			p["uuid"] = newUUID()
			value = p.print("")
		case key == "vmgenid":
			value = newUUID()
		}

		conf[key] = value
	}

	switch {
	case r.Name != "":
		conf["name"] = r.Name
	case source.conf["name"] != "":
		conf["name"] = "Copy-of-VM-" + source.conf["name"]
	default:
		conf["name"] = fmt.Sprintf("Copy-of-VM-%d", source.id)
	}

	if r.Description != "" {
		conf["description"] = description(r.Description)
	}

	v.conf = conf

	if f := w.firewalls[source.id]; f != nil {
		w.firewalls[v.id] = f.clone()
	}

	if r.Target != "" {
		v.host = r.Target
	}

	if r.Pool != "" && w.pools[r.Pool] != nil {
		w.pools[r.Pool].vms[v.id] = true
	}

	t.lines = append(t.lines, fmt.Sprintf("clone of VM %d is complete", source.id))

	return nil
}

// copyDrive copies one drive: media stay, disks are copied or linked, the cloud-init drive is created again.
func (w *World) copyDrive(source, v *vm, d driveSpec, r CloneRequest, full bool) (driveSpec, error) {
	if d.cdrom() && !d.cloudInit() {
		return d, nil
	}

	old, err := w.volume(source.host, d.file())
	if err != nil {
		return d, err
	}

	s := old.storage
	if r.Storage != "" {
		if s, err = w.imageStorage(source.host, r.Storage); err != nil {
			return d, err
		}
	}

	var made *volume

	switch {
	case d.cloudInit():
		made, err = w.cloudInitImage(source.host, s, v.id, d.key)
	case !full && d.key != "tpmstate0":
		made, err = w.link(old, v.id, d.key)
	default:
		made, err = w.copyImage(old, source.host, s, v.id, d.key, r.Format)
	}

	if err != nil {
		return d, err
	}

	d.properties["file"], d.properties["size"] = made.id, formatSize(made.bytes())

	return d, nil
}

// copyImage makes a full copy of an image.
func (w *World) copyImage(old *volume, host string, s *Storage, owner int, key, format string) (*volume, error) {
	if format == "" && s.files() && old.storage.files() {
		format = old.format
	}

	if !s.files() {
		// A format that the storage does not have falls back to the storage's own.
		format = ""
	}

	copied := old.disk.Clone("")
	copied.Interface = key

	return w.image(host, s, owner, format, copied)
}

// link makes an image that stands on a base image.
func (w *World) link(base *volume, owner int, key string) (*volume, error) {
	copied := base.disk.Clone("")
	made, err := w.image(base.host, base.storage, owner, base.format,
		machine.NewDisk(key, "", copied.Size(), copied.Content()))
	if err != nil {
		return nil, err
	}

	name := made.name()
	if made.storage.files() {
		name = name[len(strconv.Itoa(owner))+1 : len(name)-len(made.format)-1]
	}

	made.parent = base.id
	w.rename(made, made.imageID(name))

	return made, nil
}
