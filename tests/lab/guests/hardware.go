package guests

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/machine"
)

// hardware is what a stand-in for QEMU was started with.
func (g *Guests) hardware(host string, pid int) (machine.Hardware, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return machine.Hardware{}, err
	}

	q, err := parse(line)
	if err != nil {
		return machine.Hardware{}, err
	}

	hw := q.hw
	hw.Host = host

	var boot []bootEntry

	for _, d := range q.drives {
		if d.file == "" {
			continue // an empty tray
		}

		// As the host sees it: its file systems are its own.
		path := fmt.Sprintf("/proc/%d/root%s", pid, d.file)
		entry := bootEntry{index: d.bootIndex}

		switch {
		case d.cdrom && strings.Contains(d.file, "cloudinit"):
			if hw.CloudInit, err = readCloudInit(path); err != nil {
				return machine.Hardware{}, fmt.Errorf("%s: %w", d.file, err)
			}
		case d.cdrom:
			head, err := readHead(path)
			if err != nil {
				return machine.Hardware{}, err
			}

			entry.device.Medium = &machine.File{Head: head}
		case d.format != "raw":
			return machine.Hardware{}, fmt.Errorf("%s has the format %s: only raw volumes are read here", d.file, d.format)
		default:
			store, err := g.volumes.open(path)
			if err != nil {
				return machine.Hardware{}, err
			}

			disk := machine.NewDiskOn(d.id, d.file, store)
			hw.Disks = append(hw.Disks, disk)

			if disk.Content() != nil {
				entry.device.Disk = disk
			}
		}

		if entry.index > 0 && entry.device != (machine.BootDevice{}) {
			boot = append(boot, entry)
		}
	}

	slices.SortFunc(boot, func(a, b bootEntry) int { return cmp.Compare(a.index, b.index) })

	for _, b := range boot {
		hw.Boot = append(hw.Boot, b.device)
	}

	return hw, nil
}

type bootEntry struct {
	index  int
	device machine.BootDevice
}

// qemu is what a command line says.
type qemu struct {
	hw     machine.Hardware
	drives []drive
}

type drive struct {
	id, file, format string
	cdrom            bool
	bootIndex        int // 0: not in the boot order
}

// parse reads QEMU's command line as qemu-server writes it.
func parse(line []byte) (*qemu, error) {
	q := &qemu{}
	named := map[string]int{} // places in drives, by the id of the backend

	words := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	for i, word := range words[:len(words)-1] {
		value := words[i+1]
		p := properties(value)

		var err error

		switch word {
		case "-id":
			q.hw.VMID, err = strconv.Atoi(value)
		case "-name":
			q.hw.Name = p[""]
		case "-smbios":
			q.hw.UUID = cmp.Or(p["uuid"], q.hw.UUID)
		case "-smp":
			q.hw.Cores, err = strconv.Atoi(cmp.Or(p[""], p["cpus"]))
		case "-m":
			q.hw.MemoryMiB, err = strconv.Atoi(strings.TrimSuffix(cmp.Or(p[""], p["size"]), "M"))
		case "-drive":
			q.hw.UEFI = q.hw.UEFI || p["if"] == "pflash" // OVMF's code and variables

			if id, disk := strings.CutPrefix(p["id"], "drive-"); disk && p["if"] == "none" {
				named[p["id"]] = len(q.drives)
				q.drives = append(q.drives, drive{
					id: id, file: p["file"], format: cmp.Or(p["format"], "raw"), cdrom: p["media"] == "cdrom",
				})
			}
		case "-device":
			err = q.device(p, named)
		}

		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", word, value, err)
		}
	}

	if q.hw.VMID == 0 || q.hw.UUID == "" {
		return nil, fmt.Errorf("a command line without -id and -smbios: %q", bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}

	return q, nil
}

func (q *qemu) device(p map[string]string, named map[string]int) error {
	switch kind := p[""]; {
	case kind == "vfio-pci":
		q.hw.PCI = append(q.hw.PCI, p["host"])
	case p["netdev"] != "":
		q.hw.NICs = append(q.hw.NICs, machine.NIC{MAC: strings.ToUpper(p["mac"])})
	case kind == "virtserialport":
		q.hw.AgentDevice = q.hw.AgentDevice || p["name"] == "org.qemu.guest_agent.0"
	case p["drive"] != "":
		at, there := named[p["drive"]]
		if !there || p["bootindex"] == "" {
			return nil
		}

		var err error
		q.drives[at].bootIndex, err = strconv.Atoi(p["bootindex"])

		return err
	}

	return nil
}

// properties are those of an option: "virtio-net-pci,mac=…"; a comma that belongs to a value is written twice.
func properties(text string) map[string]string {
	const comma = "\x00"

	all := map[string]string{}

	for i, part := range strings.Split(strings.ReplaceAll(text, ",,", comma), ",") {
		part = strings.ReplaceAll(part, comma, ",")
		key, value, pair := strings.Cut(part, "=")

		switch {
		case pair:
			all[key] = value
		case i == 0:
			all[""] = part
		}
	}

	return all
}
