package world

import (
	"fmt"
	"slices"
	"strings"
)

// mayStart looks at all that keeps a VM from starting, and takes what it needs of its host.
func (w *World) mayStart(t *task, v *vm) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if v.template() {
		return failf("you can't start a vm if it's a template")
	}

	if v.run != nil {
		return failf("VM %d already running", v.id)
	}

	w.applyPending(v)

	if err := w.customFiles(v, v.conf); err != nil {
		return err
	}

	h, err := w.host(v.host)
	if err != nil {
		return err
	}

	if err := w.attach(t, h, v); err != nil {
		return err
	}

	if err = buildable(t, h, v.conf); err == nil {
		err = w.activateVolumes(v)
	}

	if err != nil {
		v.devices = nil
	}

	return err
}

// defaultMTU is that of a bridge without another setting.
const defaultMTU = 1500

// buildable refuses a machine that QEMU is not even asked to build (qemu-server: config_to_command).
func buildable(t *task, h *Host, conf map[string]string) error {
	if intOf(conf, "cores", 1)*intOf(conf, "sockets", 1) > h.VCPU {
		return failf("MAX %d vcpus allowed per VM on this node", h.VCPU)
	}

	if conf["bios"] == "ovmf" && conf["efidisk0"] == "" {
		t.lines = append(t.lines, "WARN: no efidisk configured! Using temporary efivars disk.")
	}

	for _, key := range sortedKeys(conf) {
		if d, err := parseDrive(key, conf[key]); isDrive(key) && err == nil && d.file() == "cdrom" {
			t.lines = append(t.lines, "WARN: no physical CD-ROM available, ignoring")
		}
	}

	for i := range options["net"].count {
		key := fmt.Sprintf("net%d", i)

		p, err := parseNetwork(key, conf[key])
		if err != nil || p["mtu"] == "" {
			continue
		}

		if p["model"] != "virtio" || p["bridge"] == "" {
			t.lines = append(t.lines, fmt.Sprintf(
				"WARN: netdev %s: ignoring MTU '%s', not using VirtIO or no bridge configured.", key, p["mtu"]))

			continue
		}

		bridge := defaultMTU
		if n, ok := h.MTU[p["bridge"]]; ok {
			bridge = n
		}

		switch mtu := intOf(p, "mtu", 1); {
		case !slices.Contains(h.Bridges, p["bridge"]):
			return failf("bridge '%s' does not exist", p["bridge"])
		case mtu == 1:
		case mtu < 576:
			return failf("netdev %s: MTU '%d' is smaller than the IP minimum MTU '576'", key, mtu)
		case mtu > bridge:
			return failf("netdev %s: MTU '%d' is bigger than the bridge MTU '%d'", key, mtu, bridge)
		}
	}

	return nil
}

// activateVolumes looks for the volumes of a VM's drives, which may have been deleted by hand.
func (w *World) activateVolumes(v *vm) error {
	for _, key := range sortedKeys(v.conf) {
		d, err := parseDrive(key, v.conf[key])
		if !isDrive(key) || strings.HasPrefix(key, "unused") || err != nil || d.storageName() == "" {
			continue
		}

		if _, err := w.volume(v.host, d.file()); err != nil {
			return err
		}
	}

	return nil
}

// plug is what QEMU does itself with what it finds on the host. What it has to complain about is in the log of the
// task.
func (w *World) plug(t *task, v *vm) error {
	failed := failf("start failed: QEMU exited with code 1")

	if complaint := w.groupBusy(v); complaint != "" {
		t.lines = append(t.lines, complaint)

		return failed
	}

	h, err := w.host(v.host)
	if err != nil {
		return err
	}

	for _, nic := range nics(v.conf) {
		if nic.Bridge != "" && !slices.Contains(h.Bridges, nic.Bridge) {
			t.lines = append(t.lines, fmt.Sprintf("bridge '%s' does not exist", nic.Bridge),
				"kvm: network script /usr/libexec/qemu-server/pve-bridge failed with status 512")

			return failed
		}
	}

	return nil
}
