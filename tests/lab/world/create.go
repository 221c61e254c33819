package world

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/timeline"
)

// CreateRequest asks for a VM that is not a clone.
type CreateRequest struct {
	VMID int
	// Conf is the configuration; drives may ask for volumes to be made.
	Conf map[string]string
	// Storage is where drives go that name none.
	Storage string
	Pool    string
	Start   bool
}

// Create makes a VM and returns the task.
func (w *World) Create(c Caller, host string, r CreateRequest) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	h, err := w.host(host)
	if err != nil {
		return "", err
	}

	if err := w.mayCreate(c, r.VMID, r.Pool); err != nil {
		return "", err
	}

	conf, err := w.prepare(c, h, nil, r.VMID, r.Pool, r.Conf, r.Storage)
	if err != nil {
		return "", err
	}

	if err := w.freeVMID(r.VMID); err != nil {
		return "", failf("unable to create VM %d - %s", r.VMID, err)
	}

	v := newVM(r.VMID, host, map[string]string{"lock": "create"})
	v.span = w.madeBy(host, conf)
	w.vms[v.id] = v

	return w.start(c, job{
		node: host, kind: "qmcreate", id: strconv.Itoa(v.id),
		undo: func() { w.forget(v) },
		work: func(t *task) error {
			release, err := w.hold(t.ctx, v)
			if err != nil {
				return err
			}
			defer release()

			if err := t.pass("create", w.latencies.CreateVM, v); err != nil {
				return err
			}

			if err := w.fill(t, v, conf, r); err != nil {
				return failf("unable to create VM %d - %s", v.id, err)
			}

			if r.Start {
				// A VM that was made but does not start is no failure of its making.
				if err := w.powerOn(t, v); err != nil {
					t.log("WARN: %s", err)
				}
			}

			return nil
		},
	}), nil
}

// madeBy is the imposed time that a VM's creation comes after: that of the file it boots from.
func (w *World) madeBy(host string, conf map[string]string) *timeline.Span {
	for _, key := range sortedKeys(conf) {
		if d, err := parseDrive(key, conf[key]); isDrive(key) && err == nil {
			if vol, err := w.volume(host, d.file()); err == nil && vol.span != nil {
				return vol.span
			}
		}
	}

	return nil
}

// mayCreate asks for the right to make a VM, on its number or on its pool.
func (w *World) mayCreate(c Caller, id int, pool string) error {
	if pool != "" {
		if w.pools[pool] == nil {
			return denied(fmt.Sprintf("pool '%s' does not exist", pool))
		}

		if w.allowed(c.ID, "/pool/"+pool, "VM.Allocate") {
			return nil
		}
	}

	if w.allowed(c.ID, fmt.Sprintf("/vms/%d", id), "VM.Allocate") {
		return nil
	}

	return &Error{Code: 403, Reason: "Permission check failed"}
}

// fill gives a new VM its configuration and its disks.
func (w *World) fill(t *task, v *vm, conf map[string]string, r CreateRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	made := maps.Clone(conf)
	made["meta"] = fmt.Sprintf("creation-qemu=9.2.0,ctime=%d", time.Now().Unix())

	if made["smbios1"] == "" {
		made["smbios1"] = "uuid=" + newUUID()
	}

	if made["vmgenid"] == "" || made["vmgenid"] == "1" {
		made["vmgenid"] = newUUID()
	}

	// The drives are looked up in v.conf while they are made, so that a second cloud-init drive is seen, and a template's
	// disks become base images.
	v.conf = map[string]string{"lock": "create", "template": made["template"]}

	for _, key := range sortedKeys(made) {
		if !isDrive(key) {
			continue
		}

		d, err := parseDrive(key, made[key])
		if err != nil {
			return err
		}

		d, _, err = w.allocate(v, d, r.Storage)
		if err != nil {
			return err
		}

		made[key] = d.String()
		v.conf[key] = made[key]
		t.lines = append(t.lines, fmt.Sprintf("%s: successfully created disk '%s'", key, made[key]))
	}

	if made["boot"] == "" {
		made["boot"] = defaultBoot(made)
	}

	v.conf = made

	if r.Pool != "" && w.pools[r.Pool] != nil {
		w.pools[r.Pool].vms[v.id] = true
	}

	return nil
}

// defaultBoot is the boot order of a VM whose creator gave none: the first disk, the first CD-ROM, the first network
// device.
func defaultBoot(conf map[string]string) string {
	var disk, cdrom, netdev string

	for _, key := range bootCandidates(conf) {
		d, err := parseDrive(key, conf[key])

		switch {
		case err != nil:
		case d.cdrom() && cdrom == "":
			cdrom = key
		case !d.cdrom() && disk == "":
			disk = key
		}
	}

	for i := range options["net"].count {
		if key := "net" + strconv.Itoa(i); netdev == "" && conf[key] != "" {
			netdev = key
		}
	}

	order := slices.DeleteFunc([]string{disk, cdrom, netdev}, func(s string) bool { return s == "" })

	return bootOrder(order)
}

func bootOrder(devices []string) string {
	if len(devices) == 0 {
		return ""
	}

	return "order=" + strings.Join(devices, ";")
}

// bootCandidates are the drives one can boot from, by bus and number.
func bootCandidates(conf map[string]string) []string {
	var keys []string

	for _, bus := range []string{"ide", "scsi", "virtio", "sata"} {
		for i := range options[bus].count {
			if key := bus + strconv.Itoa(i); conf[key] != "" {
				keys = append(keys, key)
			}
		}
	}

	return keys
}

// forget removes a VM and whatever is on storages in its name. The world is locked.
func (w *World) forget(v *vm) {
	for _, vol := range w.volumes {
		if vol.kind == "images" && vol.owner == v.id && (vol.host == "" || vol.host == v.host) {
			w.free(vol)
		}
	}

	for _, p := range w.pools {
		delete(p.vms, v.id)
	}

	delete(w.firewalls, v.id)

	if w.vms[v.id] == v {
		delete(w.vms, v.id)
	}
}

// Template is a VM that is there from the start, for others to be cloned from.
type Template struct {
	Name string
	VMID int
	Host string
	// Storage holds the disk.
	Storage string
	DiskGiB int
	// Interface is the disk's, "scsi0" when empty.
	Interface string
	// DiskOptions are the disk's options, "iothread=1,discard=on"; empty: none, as on a disk that was made by hand. One of
	// the providers leaves them to a clone as they are, so a stack that asks for others sees a change.
	DiskOptions string
	// Content is what is on the disk.
	Content machine.Content
	// CloudInit is where it has a cloud-init drive, "ide2"; empty: it has none.
	CloudInit string
	// Unfinalised leaves it a VM that was not turned into a template.
	Unfinalised bool
	// Conf is configuration in addition to, or instead of, what such templates usually have.
	Conf map[string]string
}

// AddTemplate puts a template into the world.
func (w *World) AddTemplate(t Template) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if t.Interface == "" {
		t.Interface = "scsi0"
	}

	if err := w.freeVMID(t.VMID); err != nil {
		return err
	}

	h, err := w.host(t.Host)
	if err != nil {
		return err
	}

	s, err := w.imageStorage(t.Host, t.Storage)
	if err != nil {
		return err
	}

	vol, err := w.image(t.Host, s, t.VMID, "", machine.NewDisk(t.Interface, "", int64(t.DiskGiB)*GiB, t.Content))
	if err != nil {
		return err
	}

	v := newVM(t.VMID, t.Host, map[string]string{
		"name": t.Name, "cores": "2", "sockets": "1", "memory": "2048", "cpu": "x86-64-v2-AES", "ostype": "l26", "numa": "0",
		"scsihw": "virtio-scsi-pci", "boot": bootOrder([]string{t.Interface}), "smbios1": "uuid=" + newUUID(),
		"vmgenid": newUUID(),
		"meta":    fmt.Sprintf("creation-qemu=9.2.0,ctime=%d", time.Now().Unix()),
		"net0":    "virtio=" + w.newMAC() + ",bridge=" + h.Bridges[0] + ",firewall=1",
	})
	maps.Copy(v.conf, t.Conf)
	w.vms[v.id] = v

	if t.CloudInit != "" {
		drive, err := w.cloudInitImage(t.Host, s, t.VMID, t.CloudInit)
		if err != nil {
			return err
		}

		v.conf[t.CloudInit] = drive.id + ",media=cdrom,size=4M"
	}

	if !t.Unfinalised {
		v.conf["template"] = "1"
		w.makeBase(vol)
	}

	d, err := parseDrive(t.Interface, vol.id+",size="+formatSize(vol.bytes())+","+t.DiskOptions)
	v.conf[t.Interface] = d.String()

	return err
}
