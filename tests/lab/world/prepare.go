package world

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// prepare checks settings before anything is done with them, in the order in which Proxmox VE does: each value by its
// schema, what the caller may change, then storages and bridges; and it brings values into the form in which they are
// kept. The VM is nil while it does not exist yet. The world is locked.
func (w *World) prepare(c Caller, h *Host, v *vm, id int, pool string, in map[string]string,
	defaultStorage string,
) (map[string]string, error) {
	conf := map[string]string{}

	for _, key := range sortedKeys(in) {
		value := in[key]
		if key == "cdrom" {
			// An alias that Proxmox VE resolves before anything else.
			key = "ide2"
			if !strings.Contains(value, "media=") {
				value += ",media=cdrom"
			}
		}

		if err := verify(key, value); err != nil {
			return nil, err
		}

		value, err := w.normalise(key, value)
		if err != nil {
			return nil, err
		}

		conf[key] = value
	}

	// A change asks for the storages first, a creation last.
	if v != nil {
		if err := w.mayAllocate(c, conf); err != nil {
			return nil, err
		}
	}

	for _, key := range sortedKeys(conf) {
		if err := w.mayChange(c, id, pool, key, conf[key], v == nil); err != nil {
			return nil, err
		}

		// Who takes a device away needs the same right as who gives it.
		if v != nil && v.conf[key] != "" {
			if err := w.mayUseDevice(c, key, v.conf[key]); err != nil {
				return nil, err
			}
		}
	}

	for _, key := range sortedKeys(conf) {
		if err := w.verifyAgainstHost(c, h, v, key, conf[key], defaultStorage); err != nil {
			return nil, err
		}
	}

	return conf, nil
}

// mayAllocate asks for the right to the storages on which new disks are to be.
func (w *World) mayAllocate(c Caller, conf map[string]string) error {
	for _, key := range sortedKeys(conf) {
		if !isDrive(key) {
			continue
		}

		d, err := parseDrive(key, conf[key])
		if err != nil {
			return err
		}

		storage, name, _ := strings.Cut(d.file(), ":")
		if _, err := strconv.ParseFloat(name, 64); err != nil {
			continue
		}

		if err := w.need(c, "/storage/"+storage, "Datastore.AllocateSpace"); err != nil {
			return err
		}
	}

	return nil
}

// normalise brings a value into the form in which Proxmox VE keeps it. Most are kept as they came.
func (w *World) normalise(key, value string) (string, error) {
	switch {
	case isNetwork(key):
		return w.normaliseNetwork(key, value)
	case isDrive(key):
		d, err := parseDrive(key, value)

		return d.String(), err
	case key == "tags":
		return uniqueTags(value), nil
	case key == "boot":
		p, ok := parseProperties(value, "legacy")
		if !ok {
			return "", Invalid(key, "invalid format - format error")
		}

		if order, ok := p["order"]; ok {
			return bootOrder(splitList(order)), nil
		}

		return value, nil
	case key == "description":
		return description(value), nil
	default:
		return value, nil
	}
}

// description is what is left of one: reading a configuration takes the white space from its end (qemu-server:
// QemuServer.pm, parse_vm_config).
func description(value string) string { return strings.TrimRightFunc(value, unicode.IsSpace) }

// mayChange asks for the privilege to change a setting; some only root@pam may set, in person and not through a token. Who
// creates a VM with drives needs the privileges of their storages alone.
func (w *World) mayChange(c Caller, id int, pool, key, value string, creating bool) error {
	if c.ID == superuser {
		return nil
	}

	o, _ := optionOf(key)

	switch {
	case o.privilege == "":
		return failf("only root can set '%s' config", key)
	case strings.HasPrefix(key, "serial") && value != "socket":
		return failf("only root can set '%s' config for real devices", key)
	case key == "startup":
		if err := w.need(c, "/", "Sys.Modify"); err != nil {
			return err
		}
	default:
		if err := w.mayUseDevice(c, key, value); err != nil {
			return err
		}
	}

	privileges := []string{o.privilege}

	if o.form == drive {
		if creating {
			return nil
		}

		d, err := parseDrive(key, value)

		if err == nil && d.cloudInit() {
			if err := w.need(c, fmt.Sprintf("/vms/%d", id), "VM.Config.Cloudinit"); err != nil {
				return err
			}
		}

		if err == nil && d.cdrom() {
			privileges = []string{"VM.Config.CDROM"}
		}
	}

	if o.privilege == "VM.Config.Cloudinit" || key == "nameserver" || key == "searchdomain" ||
		strings.HasPrefix(key, "ipconfig") {
		privileges = []string{"VM.Config.Cloudinit", "VM.Config.Network"}
	}

	if pool != "" {
		for _, p := range privileges {
			if w.allowed(c.ID, "/pool/"+pool, p) {
				return nil
			}
		}
	}

	return w.needAny(c, fmt.Sprintf("/vms/%d", id), privileges...)
}

// mayUseDevice asks for the right to give a VM a device of its host: by a mapping, for only root@pam may name the
// device itself (qemu-server: check_hostpci_perm, check_usb_perm, check_mapping_access).
func (w *World) mayUseDevice(c Caller, key, value string) error {
	kind, words := "", ""

	switch strings.TrimRight(key, "0123456789") {
	case "hostpci":
		kind, words = "pci", "non-mapped devices"
	case "usb":
		kind, words = "usb", "real devices"
	default:
		return nil
	}

	p, _ := parseProperties(value, "host")

	switch {
	case c.ID == superuser, kind == "usb" && strings.EqualFold(p["host"], "spice"):
		return nil
	case p["host"] != "":
		return failf("only root can set '%s' config for %s", key, words)
	case p["mapping"] != "":
		return w.need(c, "/mapping/"+kind+"/"+p["mapping"], "Mapping.Use")
	default:
		return failf("either 'host' or 'mapping' must be set.")
	}
}

// verifyAgainstHost looks for what a setting names: storages, volumes, bridges.
func (w *World) verifyAgainstHost(c Caller, h *Host, v *vm, key, value, defaultStorage string) error {
	switch {
	case isNetwork(key):
		p, err := parseNetwork(key, value)
		if err != nil || p["bridge"] == "" {
			return err
		}

		return w.need(c, p.vnet(), "SDN.Use")
	case isDrive(key):
		return w.verifyDrive(c, h, v, key, value, defaultStorage)
	}

	return nil
}

func (w *World) verifyDrive(c Caller, h *Host, v *vm, key, value, defaultStorage string) error {
	d, err := parseDrive(key, value)
	if err != nil {
		return err
	}

	name := d.storageName()

	switch {
	case d.file() == "none":
		return nil
	case d.file() == "cdrom" && d.cdrom():
		return w.need(c, "/", "Sys.Console") // the drive of the host itself
	case name == "" && newDisk.MatchString(d.file()), d.file() == "cloudinit":
		name = defaultStorage
	case name == "":
		return Invalid(key, "invalid format - format error\n%s.file: invalid format - unable to parse volume ID '%s'\n", key,
			d.file())
	}

	s, err := w.storage(h.Name, name)
	if err != nil {
		return err
	}

	created := newDisk.MatchString(d.file()) || strings.HasSuffix(d.file(), "cloudinit") &&
		!cloudInitName.MatchString(d.file())
	if created {
		if !s.holds("images") {
			return Invalid("storage", "storage '%s' does not support vm images", name)
		}

		return w.need(c, "/storage/"+name, "Datastore.AllocateSpace")
	}

	// A volume that the drive has already needs no further right.
	if v != nil {
		if old, err := parseDrive(key, v.effective()[key]); err == nil && old.file() == d.file() {
			return nil
		}
	}

	return w.needAny(c, "/storage/"+name, "Datastore.AllocateSpace", "Datastore.Audit")
}
