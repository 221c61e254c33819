package generate

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/proxmoxapi"
)

var (
	diskPosition = regexp.MustCompile(`^(scsi|virtio|sata|ide)\d+$`)
	sizeOf       = regexp.MustCompile(`^(\d+)([MGT])$`)
)

// shape is what the stack file says of a VM, as far as it is not what it would be anyway.
func (w *writer) shape(m *machine) tree {
	s := m.settings
	t := tree{
		"cores": number(s["cores"], 1) * number(s["sockets"], 1), "memoryMiB": number(s["memory"], 512),
		"cpuType": cpuType(s["cpu"]), "onBoot": s["onboot"] == "1",
	}

	for key, on := range map[string]bool{
		"numa": s["numa"] == "1", "protection": s["protection"] == "1", "serial": s["serial0"] != "",
		"tpm": s["tpmstate0"] != "",
	} {
		if on {
			t[key] = true
		}
	}

	if units := number(s["cpuunits"], proxmoxapi.DefaultCPUUnits); units != proxmoxapi.DefaultCPUUnits {
		t["cpuUnits"] = units
	}

	switch least, memory := number(s["balloon"], 0), t["memoryMiB"].(int); {
	case least > 0 && least < memory:
		t["ballooning"], t["minimumMemoryMiB"] = true, least
	case least > 0:
		w.note("VM %d has ballooning that gives nothing back, because its minimum is all of its memory: the first update "+
			"switches it off, for which the VM restarts; or add ballooning and a lower minimumMemoryMiB", m.vm.ID)
	}

	if !w.templates() {
		t["machine"] = map[bool]string{true: "q35", false: "i440fx"}[strings.Contains(s["machine"], "q35")]
		t["firmware"] = textOr(s["bios"], "seabios")
		t["scsiController"] = textOr(s["scsihw"], "lsi")
	}

	w.disks(m, t)
	w.nics(m, t)

	if tags := slices.DeleteFunc(slices.Clone(m.vm.Tags),
		func(tag string) bool { return slices.Contains([]string{"talos", w.cluster, role(m)}, tag) }); len(tags) > 0 {
		t["tags"] = tags
	}

	if startup := proxmoxapi.Properties(s["startup"]); s["startup"] != "" {
		of := tree{}

		for from, to := range map[string]string{"order": "order", "up": "upDelaySeconds", "down": "downDelaySeconds"} {
			if startup[from] != "" {
				of[to] = number(startup[from], 0)
			}
		}

		t["startup"] = of
	}

	return t
}

// disks are the system disk, from which the VM boots, and the others after it.
func (w *writer) disks(m *machine, t tree) {
	var positions []string

	for key, value := range m.settings {
		if diskPosition.MatchString(key) && !strings.Contains(value, "media=cdrom") {
			positions = append(positions, key)
		}
	}

	slices.Sort(positions)

	if len(positions) == 0 {
		w.note("VM %d has no disk that this program supports", m.vm.ID)

		return
	}

	// The first that it boots from, else the first there is.
	system := positions[0]

	for _, boots := range strings.Split(strings.TrimPrefix(m.settings["boot"], "order="), ";") {
		if slices.Contains(positions, boots) {
			system = boots

			break
		}
	}

	size, options := w.disk(m, system, w.templates())
	t["diskGiB"], t["disk"] = size, options

	var extra []any

	for _, position := range positions {
		if position == system {
			continue
		}

		size, options := w.disk(m, position, false)
		options["sizeGiB"] = size
		extra = append(extra, options)
	}

	if extra != nil {
		t["extraDisks"] = extra
	}
}

// disk reads "local-lvm:vm-401-disk-0,discard=on,size=40G". The options of a disk that was cloned are its template's.
func (w *writer) disk(m *machine, position string, cloned bool) (sizeGiB int, t tree) {
	p := proxmoxapi.Properties(m.settings[position])
	datastore, _, _ := strings.Cut(textOr(p["file"], p[""]), ":")
	t = tree{"interface": position, "datastore": datastore}

	found := sizeOf.FindStringSubmatch(p["size"])
	if found == nil {
		w.note("Proxmox VE does not report the size of disk %s of VM %d: correct it", position, m.vm.ID)

		return 0, t
	}

	sizeGiB = number(found[1], 0)

	switch found[2] {
	case "M":
		sizeGiB = (sizeGiB + 1023) / 1024
	case "T":
		sizeGiB *= 1024
	}

	if cloned {
		return sizeGiB, t
	}

	t["cache"], t["aio"] = textOr(p["cache"], "none"), textOr(p["aio"], "io_uring")
	t["discard"], t["ssd"], t["iothread"] = p["discard"] == "on", p["ssd"] == "1", p["iothread"] == "1"
	t["backup"], t["replicate"] = p["backup"] != "0", p["replicate"] != "0"

	return sizeGiB, t
}

func (w *writer) nics(m *machine, t tree) {
	var nics []any

	for i := range 32 {
		value := m.settings["net"+strconv.Itoa(i)]
		if value == "" {
			continue
		}

		p := proxmoxapi.Properties(value)
		nic := tree{"bridge": p["bridge"], "vlan": number(p["tag"], 0), "firewall": p["firewall"] == "1"}

		if p["mtu"] != "" {
			nic["mtu"] = number(p["mtu"], 1500)
		}

		if p["virtio"] == "" {
			w.note("network interface net%d of VM %d is not a virtio one: the first update would make it one", i, m.vm.ID)
		}

		if i > 0 {
			w.note("the MAC address of network interface net%d of VM %d cannot be set: the first update would change it", i,
				m.vm.ID)
		}

		nics = append(nics, nic)
	}

	t["nics"] = nics
}

// gpu is the address of the GPU that is passed through; empty without one.
func (w *writer) gpu(m *machine) (bdf string, options tree) {
	value := m.settings["hostpci0"]
	if value == "" {
		return "", nil
	}

	p := proxmoxapi.Properties(value)
	bdf = textOr(p["host"], p[""])

	for _, mapped := range w.mappings[p["mapping"]] {
		if mapped.Host == m.vm.Host {
			bdf = mapped.BDF
		}
	}

	if p["mapping"] != "" && p["mapping"] != m.vm.Name {
		w.note("the GPU of VM %d comes from the resource mapping %s; the program makes one called %s, to which the first "+
			"update would change it, with a restart",
			m.vm.ID, p["mapping"], m.vm.Name)
	}

	options = tree{"bdf": bdf, "pcie": p["pcie"] == "1", "rombar": p["rombar"] != "0"}
	if p["mapping"] == "" {
		options["raw"] = true
	}

	return bdf, options
}

func cpuType(setting string) string {
	p := proxmoxapi.Properties(setting)

	return textOr(textOr(p["cputype"], p[""]), "kvm64")
}

func number(text string, fallback int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return fallback
	}

	return n
}

func textOr(text, fallback string) string {
	if text == "" {
		return fallback
	}

	return text
}
