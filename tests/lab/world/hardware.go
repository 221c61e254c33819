package world

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/machine"
)

// hardware describes the machine that a power-on finds. The world is locked.
func (w *World) hardware(v *vm) machine.Hardware {
	conf := v.conf

	smbios, _ := parseProperties(conf["smbios1"], "uuid")

	hw := machine.Hardware{
		Host: v.host, VMID: v.id, Name: v.subject(), UUID: smbios["uuid"],
		Cores:     intOf(conf, "cores", 1) * intOf(conf, "sockets", 1),
		MemoryMiB: memoryMiB(conf), NICs: nics(conf), AgentDevice: agentEnabled(conf),
		PCI: addresses(v.devices), After: v.span, UEFI: conf["bios"] == "ovmf",
	}

	devices := map[string]machine.BootDevice{}

	for _, key := range bootCandidates(conf) {
		d, err := parseDrive(key, conf[key])
		if err != nil {
			continue
		}

		vol, err := w.volume(v.host, d.file())

		switch {
		case d.cloudInit():
			hw.CloudInit = w.cloudInit(v)
		case err != nil: // an empty tray, the host's own drive, a volume that is gone
		case d.cdrom():
			if vol.content != nil {
				devices[key] = machine.BootDevice{Medium: vol.content}
			}
		default:
			hw.Disks = append(hw.Disks, vol.disk)

			if vol.disk.Content() != nil {
				devices[key] = machine.BootDevice{Disk: vol.disk}
			}
		}
	}

	for _, key := range bootKeys(conf) {
		if d, ok := devices[key]; ok {
			hw.Boot = append(hw.Boot, d)
		}
	}

	return hw
}

// bootKeys is the boot order; without one, the first disk and then the first CD-ROM.
func bootKeys(conf map[string]string) []string {
	order, ok := strings.CutPrefix(conf["boot"], "order=")
	if !ok {
		order, _ = strings.CutPrefix(defaultBoot(conf), "order=")
	}

	return splitList(order)
}

// cloudInit is what the cloud-init drive says.
func (w *World) cloudInit(v *vm) *machine.CloudInit {
	ci := &machine.CloudInit{Format: cmp.Or(v.conf["citype"], "nocloud"), Hostname: v.subject()}

	if windows := strings.HasPrefix(v.conf["ostype"], "w"); windows && v.conf["citype"] == "" {
		ci.Format = "configdrive2"
	}

	for i := range len(nics(v.conf)) {
		p, _ := parseProperties(v.conf["ipconfig"+strconv.Itoa(i)], "ip")
		prefix, _ := netip.ParsePrefix(p["ip"])
		gateway, _ := netip.ParseAddr(p["gw"])
		ci.Addresses = append(ci.Addresses, prefix)
		ci.Gateways = append(ci.Gateways, gateway)
	}

	for _, s := range splitList(v.conf["nameserver"]) {
		if a, err := netip.ParseAddr(s); err == nil {
			ci.DNS = append(ci.DNS, a)
		}
	}

	custom, _ := parseProperties(v.conf["cicustom"], "user")
	if vol, err := w.volume(v.host, custom["user"]); err == nil {
		ci.UserData = vol.text
	}

	return ci
}
