package world

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// UpdateRequest changes a VM's configuration.
type UpdateRequest struct {
	Conf   map[string]string
	Delete []string
	Revert []string
	// Force deletes the volumes of drives that are deleted, instead of keeping them as unused.
	Force  bool
	Digest string
}

// Update changes a VM's configuration before it returns. A fault that is meant for a task strikes the call, since there
// is none.
func (w *World) Update(c Caller, host string, id int, r UpdateRequest) error {
	if c.Task != nil && !c.Task.Late {
		return failf("%s", c.Task.Message)
	}

	work, v, err := w.prepareUpdate(c, host, id, r)
	if err != nil {
		return err
	}

	release, err := w.hold(w.ctx, v)
	if err != nil {
		return err
	}
	defer release()

	return work()
}

// UpdateTask changes a VM's configuration in a task.
func (w *World) UpdateTask(c Caller, host string, id int, r UpdateRequest) (string, error) {
	work, v, err := w.prepareUpdate(c, host, id, r)
	if err != nil {
		return "", err
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	return w.start(c, job{node: host, kind: "qmconfig", id: strconv.Itoa(id), work: func(t *task) error {
		release, err := w.hold(t.ctx, v)
		if err != nil {
			return err
		}
		defer release()

		return work()
	}}), nil
}

// prepareUpdate makes the early checks and returns what remains to be done with the lock file held.
func (w *World) prepareUpdate(c Caller, host string, id int, r UpdateRequest) (func() error, *vm, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	h, err := w.host(host)
	if err != nil {
		return nil, nil, err
	}

	if len(r.Conf)+len(r.Delete)+len(r.Revert) == 0 {
		return nil, nil, failf("no options specified")
	}

	for i, key := range r.Delete {
		if key == "cdrom" {
			r.Delete[i], key = "ide2", "ide2"
		}

		if _, both := r.Conf[key]; both {
			return nil, nil, Invalid("delete", "you can't use '-%s' and -delete %s' at the same time", key, key)
		}

		if !IsOption(key) {
			return nil, nil, Invalid("delete", "unknown option '%s'", key)
		}
	}

	v, err := w.find(host, id)
	if err != nil {
		return nil, nil, err
	}

	conf, err := w.prepare(c, h, v, id, "", r.Conf, "")
	if err != nil {
		return nil, nil, err
	}

	for _, key := range r.Delete {
		// Devices that are not there can be deleted by everybody, and are: clients delete all that a VM should not have.
		value, set := v.effective()[key]
		if !set && byValue.MatchString(key) {
			continue
		}

		if err := w.mayChange(c, id, "", key, value, false); err != nil {
			return nil, nil, err
		}
	}

	if err := w.mayUpdate(v, conf, r); err != nil {
		return nil, nil, err
	}

	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()

		// The VM may have been locked or changed while this waited for the lock file.
		if w.vms[id] != v {
			return failf("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", host, id)
		}

		if err := w.mayUpdate(v, conf, r); err != nil {
			return err
		}

		return w.update(v, conf, r)
	}, v, nil
}

// byValue are the settings whose value decides who may delete them (qemu-server: check_vm_modify_config_perm).
var byValue = regexp.MustCompile(
	`^((ide|sata|scsi|virtio|unused|serial|usb|hostpci|virtiofs)\d+|efidisk0|tpmstate0|tags)$`)

func (w *World) mayUpdate(v *vm, conf map[string]string, r UpdateRequest) error {
	if r.Digest != "" && r.Digest != v.digest() {
		return failf("checksum mismatch (file change by other user?)")
	}

	if err := v.unlocked(); err != nil {
		return err
	}

	after := v.effective()
	for key, value := range conf {
		after[key] = value
	}

	if balloon := intOf(after, "balloon", 0); balloon > memoryMiB(after) {
		return failf("balloon value too large (must be smaller than assigned memory)")
	}

	// Boot devices are checked here and not on creation: a creator may name a disk that is imported later.
	if order, ok := strings.CutPrefix(conf["boot"], "order="); ok {
		for _, device := range splitList(order) {
			if after[device] == "" || slices.Contains(r.Delete, device) {
				return failf("invalid bootorder: device '%s' does not exist'", device)
			}
		}
	}

	return nil
}

// update changes the configuration: deletions first, then values, all as pending; then what a stopped machine takes at
// once and a running one can take is taken. The world is locked.
func (w *World) update(v *vm, conf map[string]string, r UpdateRequest) error {
	for _, key := range r.Revert {
		delete(v.pending, key)
		delete(v.remove, key)
	}

	for _, key := range r.Delete {
		if err := w.removeSetting(v, key, r.Force); err != nil {
			return err
		}
	}

	for _, key := range sortedKeys(conf) {
		if err := w.setSetting(v, key, conf[key]); err != nil {
			return err
		}
	}

	// A change to what is has nothing to wait for.
	for key, value := range v.pending {
		if v.conf[key] == value {
			delete(v.pending, key)
		}
	}

	if v.run != nil {
		return w.hotplug(v)
	}

	// A new cloud-init drive is written at once.
	if err := w.customFiles(v, v.pending); err != nil {
		return err
	}

	w.applyPending(v)

	return nil
}

// customFiles refuses to write the cloud-init drive among settings that takes something from a file that is not there.
func (w *World) customFiles(v *vm, settings map[string]string) error {
	if !slices.ContainsFunc(sortedKeys(settings), func(key string) bool {
		d, err := parseDrive(key, settings[key])

		return isDrive(key) && err == nil && d.cloudInit()
	}) {
		return nil
	}

	for _, part := range splitList(v.effective()["cicustom"]) {
		_, file, _ := strings.Cut(part, "=")
		if _, err := w.volume(v.host, file); err != nil {
			return err
		}
	}

	return nil
}

// WriteCloudInit writes the cloud-init drive of a VM again. The lab writes it whenever it is read.
func (w *World) WriteCloudInit(host string, id int) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	v, err := w.find(host, id)
	if err != nil {
		return err
	}

	return w.customFiles(v, v.effective())
}

// removeSetting notes that a setting is to go; unused disks go at once, with their volumes.
func (w *World) removeSetting(v *vm, key string, force bool) error {
	value, ok := v.effective()[key]
	if !ok {
		return nil
	}

	if v.conf["protection"] == "1" && strings.HasPrefix(key, "unused") {
		return failf("can't remove unused disk '%s' - protection mode enabled", value)
	}

	if v.conf["protection"] == "1" && isDrive(key) {
		return failf("can't remove drive '%s' - protection mode enabled", key)
	}

	w.dropPending(v, key, "")
	w.dropBootDevice(v, key)

	if strings.HasPrefix(key, "unused") {
		if vol, err := w.volume(v.host, value); err == nil && vol.owner == v.id {
			w.free(vol)
		}

		delete(v.conf, key)

		return nil
	}

	if _, ok := v.conf[key]; !ok {
		return nil
	}

	if force && isDrive(key) {
		d, err := parseDrive(key, value)
		if err != nil {
			return err
		}

		if vol, err := w.volume(v.host, d.file()); err == nil && vol.owner == v.id {
			w.free(vol)
		}
	}

	v.remove[key] = true

	return nil
}

func (w *World) dropBootDevice(v *vm, key string) {
	order, ok := strings.CutPrefix(v.effective()["boot"], "order=")
	if !ok {
		return
	}

	devices := splitList(order)
	if i := slices.Index(devices, key); i >= 0 {
		v.pending["boot"] = bootOrder(slices.Delete(devices, i, i+1))
	}
}

// setSetting notes a new value, and makes the volumes it asks for.
func (w *World) setSetting(v *vm, key, value string) error {
	delete(v.remove, key)

	if isDrive(key) {
		d, err := parseDrive(key, value)
		if err != nil {
			return err
		}

		// The drive itself does not count as a second cloud-init drive, and what it held is given up below.
		if d, _, err = w.allocate(v, d, ""); err != nil {
			return err
		}

		value = d.String()

		// A new CD-ROM is made bootable.
		if order, ok := strings.CutPrefix(v.effective()["boot"], "order="); ok && d.cdrom() &&
			!slices.Contains(splitList(order), key) {
			v.pending["boot"] = bootOrder(append(splitList(order), key))
		}
	}

	w.dropPending(v, key, value)

	if v.conf[key] != value {
		v.pending[key] = value
	}

	return nil
}

// dropPending forgets a change that another one takes the place of. A disk that was only pending loses its place like
// any other.
func (w *World) dropPending(v *vm, key, value string) {
	was, pending := v.pending[key]
	delete(v.pending, key)

	if !pending || !isDrive(key) {
		return
	}

	now, _ := parseDrive(key, v.conf[key])
	if d, err := parseDrive(key, was); err == nil && d.file() != now.file() {
		w.detach(v, key, was, value)
	}
}
