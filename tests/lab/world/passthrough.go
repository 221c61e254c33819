package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const bdf = `(?:[a-f0-9]{4,}:)?[a-f0-9]{2}:[a-f0-9]{2}(?:\.[a-f0-9])?`

// hostPCI is the schema of hostpciN (qemu-server: PCI.pm).
var hostPCI = format{
	"host":          {schema: matching(bdf + `(;` + bdf + `)*`), main: true},
	"mapping":       {schema: configID},
	"rombar":        {schema: flag},
	"romfile":       {schema: matching(`[^,;]+`)},
	"pcie":          {schema: flag},
	"x-vga":         {schema: flag},
	"legacy-igd":    {schema: flag},
	"mdev":          {schema: matching(`[^/.:]+`)},
	"vendor-id":     {schema: matching(`0x[0-9a-fA-F]{4}`)},
	"device-id":     {schema: matching(`0x[0-9a-fA-F]{4}`)},
	"sub-vendor-id": {schema: matching(`0x[0-9a-fA-F]{4}`)}, "sub-device-id": {schema: matching(`0x[0-9a-fA-F]{4}`)},
}

// passed is one hostpciN of a VM: the choices of devices that a mapping leaves, of which it takes the first that is
// free.
type passed struct {
	key     string
	choices [][]PCIDevice
	mdev    bool
}

// passthrough finds what a VM's settings mean on its host, in the order and with the words of qemu-server (PCI.pm,
// parse_hostpci_devices). The world is locked.
func (w *World) passthrough(h *Host, v *vm) ([]passed, error) {
	var list []passed

	for i := range options["hostpci"].count {
		key := "hostpci" + strconv.Itoa(i)

		value, ok := v.conf[key]
		if !ok {
			continue
		}

		p, err := hostPCI.parse(key, value)
		if err != nil {
			return nil, failf("%s", err)
		}

		choices, err := w.hostDevices(h, p)
		if err != nil {
			return nil, err
		}

		if p["pcie"] == "1" && !q35(v.conf) {
			return nil, failf("q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 495.")
		}

		list = append(list, passed{key: key, choices: choices, mdev: p["mdev"] != ""})
	}

	return list, nil
}

// q35 tells whether a machine is of the newer model, which has PCI Express.
func q35(conf map[string]string) bool {
	p, _ := parseProperties(conf["machine"], "type")

	return strings.Contains(p["type"], "q35")
}

// hostDevices are the devices that a hostpci setting names, by itself or by a mapping.
func (w *World) hostDevices(h *Host, p properties) ([][]PCIDevice, error) {
	var addresses []string

	switch {
	case p["host"] != "" && p["mapping"] != "":
		return nil, failf("Cannot set both 'host' and 'mapping'.")
	case p["mapping"] != "":
		m := w.mappings["pci/"+p["mapping"]]
		if m == nil || len(m.on(h.Name)) == 0 {
			return nil, failf("PCI device mapping not found for '%s'", p["mapping"])
		}

		for _, entry := range m.on(h.Name) {
			if err := m.verify(h, entry); err != nil {
				return nil, failf("PCI device mapping invalid (hardware probably changed): %s", err)
			}

			addresses = append(addresses, entry["path"])
		}
	case p["host"] != "":
		addresses = []string{p["host"]}
	default:
		return nil, failf("Either 'host' or 'mapping' must be set.")
	}

	var choices [][]PCIDevice

	for _, list := range addresses {
		var devices []PCIDevice

		for address := range strings.SplitSeq(list, ";") {
			found := h.lspci(address)
			if len(found) == 0 {
				return nil, failf("no PCI device found for '%s'", address)
			}

			devices = append(devices, found...)
		}

		if len(devices) > 1 && p["mdev"] != "" {
			return nil, failf("cannot use mediated device with multifunction device")
		}

		choices = append(choices, devices)
	}

	return choices, nil
}

// attach takes the devices that a VM's settings name for the power-on that follows, or says why it cannot have them.
// They stay taken until it ends. The world is locked.
func (w *World) attach(t *task, h *Host, v *vm) error {
	list, err := w.passthrough(h, v)
	if err != nil {
		return err
	}

	taken := map[string]bool{}

	var devices []PCIDevice

	for _, p := range list {
		chosen := p.choices[0]

		if len(p.choices) > 1 {
			i := slices.IndexFunc(p.choices, func(c []PCIDevice) bool {
				return !overlaps(c, taken) &&
					w.deviceFree(v, c) == nil
			})
			if i < 0 {
				return failf("could not find a free device for '%s'", p.key)
			}

			chosen = p.choices[i]
		}

		for _, d := range chosen {
			if taken[d.BDF] {
				return failf("device '%s' assigned more than once", d.BDF)
			}

			taken[d.BDF] = true
		}

		if p.mdev {
			// No device of the lab has types of mediated devices to choose from.
			t.lines = append(t.lines, fmt.Sprintf("pci device '%s' does not support mediated devices", chosen[0].BDF))

			return failf("could not create mediated device")
		}

		devices = append(devices, chosen...)
	}

	if err := w.deviceFree(v, devices); err != nil {
		return err
	}

	if len(devices) > 0 && h.NoIOMMU {
		return failf("cannot prepare PCI pass-through, IOMMU not present")
	}

	v.devices = devices

	return nil
}

func overlaps(devices []PCIDevice, taken map[string]bool) bool {
	return slices.ContainsFunc(devices, func(d PCIDevice) bool { return taken[d.BDF] })
}

// deviceFree refuses devices that another VM of the host has.
func (w *World) deviceFree(v *vm, devices []PCIDevice) error {
	for _, d := range devices {
		for _, id := range sortedKeys(w.vms) {
			o := w.vms[id]
			if o == v || o.host != v.host || !slices.ContainsFunc(o.devices, func(e PCIDevice) bool { return e.BDF == d.BDF }) {
				continue
			}

			if o.run == nil {
				return failf("PCI device '%s' is currently reserved for use by VMID '%d'", d.BDF, o.id)
			}

			return failf("PCI device '%s' already in use by VMID '%d'", d.BDF, o.id)
		}
	}

	return nil
}

// groupBusy is what QEMU prints when an IOMMU group of a VM's devices is with another VM, empty when none is: the
// kernel gives a group to one process.
func (w *World) groupBusy(v *vm) string {
	for _, d := range v.devices {
		for _, id := range sortedKeys(w.vms) {
			o := w.vms[id]
			if o == v || o.host != v.host || !slices.ContainsFunc(o.devices,
				func(e PCIDevice) bool { return e.IOMMUGroup == d.IOMMUGroup }) {
				continue
			}

			return fmt.Sprintf("kvm: -device vfio-pci,host=%s: vfio %s: failed to open /dev/vfio/%d: Device or resource busy",
				d.BDF, d.BDF, d.IOMMUGroup)
		}
	}

	return ""
}

func addresses(devices []PCIDevice) []string {
	var list []string

	for _, d := range devices {
		list = append(list, d.BDF)
	}

	return list
}

// stays refuses to move a VM whose devices the target does not have (qemu-server: QemuMigrate.pm, prepare).
func (w *World) stays(v *vm, target string) error {
	var local, missing, live []string

	for _, key := range sortedKeys(v.conf) {
		p, _ := parseProperties(v.conf[key], "host")
		family := strings.TrimRight(key, "0123456789")

		switch {
		case (family == "serial" || family == "parallel") && v.conf[key] != "socket":
			local = append(local, key)
		case family != "hostpci" && family != "usb", p["host"] == "spice":
		case p["mapping"] == "":
			local = append(local, key)
		default:
			m := w.mappings[strings.TrimPrefix(family, "host")+"/"+p["mapping"]]
			if m == nil || len(m.on(target)) == 0 {
				missing = append(missing, key)
			}

			if m == nil || !m.LiveMigration {
				live = append(live, p["mapping"])
			}
		}
	}

	switch {
	case len(local) > 0:
		return failf("can't migrate VM which uses local devices: %s", strings.Join(local, ", "))
	case len(missing) > 0:
		return failf("can't migrate to '%s': missing mapped devices %s", target, strings.Join(missing, ", "))
	case v.run != nil && len(live) > 0:
		return failf("can't live migrate running VM which uses following mapped devices: %s", strings.Join(live, ", "))
	default:
		return nil
	}
}
