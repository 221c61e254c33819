package world

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// applyPending is what happens to pending changes when the machine is off. The world is locked.
func (w *World) applyPending(v *vm) {
	for _, key := range sortedKeys(v.remove) {
		w.take(v, key, "")
	}

	for _, key := range sortedKeys(v.pending) {
		w.take(v, key, v.pending[key])
	}

	v.pending, v.remove = map[string]string{}, map[string]bool{}
}

// hotplug applies what a running machine takes at once and leaves the rest pending (qemu-server:
// vmconfig_hotplug_pending).
func (w *World) hotplug(v *vm) error {
	features := strings.Split(v.conf["hotplug"], ",")
	if v.conf["hotplug"] == "" || v.conf["hotplug"] == "1" {
		features = []string{"network", "disk", "usb"}
	}

	for _, key := range sortedKeys(v.remove) {
		if w.pluggable(v, key, "", features) {
			w.take(v, key, "")
			delete(v.remove, key)
		}
	}

	problems := map[string]string{}

	for _, key := range sortedKeys(v.pending) {
		value := v.pending[key]

		switch {
		case isDrive(key) && mediaChange(key, v.conf[key], value):
			problems[key] = "hotplug problem - unable to change media type"
		case w.pluggable(v, key, value, features):
			if why := w.unpluggable(v, key, value); why != "" {
				problems[key] = "hotplug problem - " + why

				continue
			}

			w.take(v, key, value)
			delete(v.pending, key)
		}
	}

	if len(problems) > 0 {
		return &Error{Code: 400, Reason: "Parameter verification failed.", Fields: problems}
	}

	return nil
}

// unpluggable is why the host cannot give a running machine a network device; empty: it can. A device that is new to
// QEMU fails in the script that plugs it, another one when it changes bridges.
func (w *World) unpluggable(v *vm, key, value string) string {
	if !isNetwork(key) {
		return ""
	}

	h, err := w.host(v.host)
	p, err2 := parseNetwork(key, value)

	if err != nil || err2 != nil || p["bridge"] == "" || slices.Contains(h.Bridges, p["bridge"]) {
		return ""
	}

	before, err := parseNetwork(key, v.conf[key])
	if fresh := err != nil || before["model"] != p["model"] || before["macaddr"] != p["macaddr"]; fresh &&
		w.version.Major() < 9 {
		return fmt.Sprintf("VM %d qmp command 'netdev_add' failed - network script "+
			"/usr/libexec/qemu-server/pve-bridge failed with status 512", v.id)
	}

	return fmt.Sprintf("bridge '%s' does not exist", p["bridge"])
}

// mediaChange tells whether a disk is to become a CD-ROM, or the other way round.
func mediaChange(key, before, after string) bool {
	was, err := parseDrive(key, before)
	is, err2 := parseDrive(key, after)

	return err == nil && err2 == nil && was.cdrom() != is.cdrom()
}

func (w *World) pluggable(v *vm, key, value string, features []string) bool {
	o, _ := optionOf(key)

	switch {
	case key == "tablet":
		return slices.Contains(features, "usb")
	case key == "hotplug":
		return !strings.Contains(v.conf[key]+value, "cpu") && !strings.Contains(v.conf[key]+value, "memory")
	case o.live:
		return true
	case isNetwork(key):
		return slices.Contains(features, "network")
	case key == "memory":
		return slices.Contains(features, "memory")
	case key == "vcpus":
		return slices.Contains(features, "cpu")
	case key == "balloon":
		// The device itself comes and goes with a start only.
		return (v.conf[key] == "0") == (value == "0")
	case key == "agent":
		return value != "" && sameAgent(v.conf[key], value)
	case key == "efidisk0" || key == "tpmstate0":
		return false
	case isDrive(key):
		return w.pluggableDrive(v, key, value, slices.Contains(features, "disk"))
	default:
		return false
	}
}

// sameAgent tells whether all but what the host does by itself stays as it is.
func sameAgent(before, after string) bool {
	was, err := agentFormat.parse("agent", before)
	is, err2 := agentFormat.parse("agent", after)

	delete(was, "fstrim_cloned_disks")
	delete(is, "fstrim_cloned_disks")

	return err == nil && err2 == nil && maps.Equal(was, is)
}

// noHotplug are properties of a disk that it only takes with a new start.
var noHotplug = strings.Fields("aio cache discard iothread product queues ro ssd vendor")

func (w *World) pluggableDrive(v *vm, key, value string, disks bool) bool {
	hotBus := strings.HasPrefix(key, "scsi") || strings.HasPrefix(key, "virtio")
	before, had := v.conf[key]

	if !had || value == "" {
		return disks && hotBus
	}

	was, err := parseDrive(key, before)
	if err != nil {
		return false
	}

	is, err := parseDrive(key, value)
	if err != nil {
		return false
	}

	if was.cdrom() {
		return true
	}

	if was.file() != is.file() {
		return disks
	}

	return !slices.ContainsFunc(noHotplug, func(p string) bool { return was.properties[p] != is.properties[p] })
}

// take makes a change effective; a disk that loses its place stays as an unused one, a cloud-init drive goes for good.
func (w *World) take(v *vm, key, value string) {
	if old, had := v.conf[key]; had && isDrive(key) {
		w.detach(v, key, old, value)
	}

	if value == "" {
		delete(v.conf, key)

		return
	}

	v.conf[key] = value

	// A volume that has found its place is unused no more.
	if d, err := parseDrive(key, value); err == nil && isDrive(key) {
		maps.DeleteFunc(v.conf, func(other, held string) bool {
			return other != key && strings.HasPrefix(other, "unused") && held == d.file()
		})
	}
}

func (w *World) detach(v *vm, key, before, after string) {
	was, err := parseDrive(key, before)
	if err != nil || was.cdrom() && !was.cloudInit() {
		return
	}

	if is, err := parseDrive(key, after); after != "" && err == nil && is.file() == was.file() {
		return
	}

	vol, err := w.volume(v.host, was.file())
	if err != nil || vol.owner != v.id {
		return
	}

	if was.cloudInit() {
		w.free(vol)

		return
	}

	w.addUnused(v, vol)
}

// addUnused keeps a volume with its VM and returns under which name.
func (w *World) addUnused(v *vm, vol *volume) string {
	for i := range options["unused"].count {
		key := fmt.Sprintf("unused%d", i)
		if _, taken := v.conf[key]; !taken {
			v.conf[key] = vol.id

			return key
		}
	}

	return ""
}
