package proxmoxapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/luthermonson/go-proxmox"
)

// VM is a virtual machine, a template or a container: whatever has a VMID.
//
// Where it is and its tags are in files of the cluster. All else is what its host says of it: now, where the host was
// asked, or what it has said last, which is old, and forgotten once the host has been silent for some minutes.
type VM struct {
	ID int
	// Name is empty where it is forgotten.
	Name      string
	Host      string
	Template  bool
	Container bool
	Tags      []string
	// Pool is the resource pool that it is in; empty: none, or its host was asked, which does not say.
	Pool string
	// MemoryMiB is what it is promised; 0 where that is forgotten.
	MemoryMiB int
	// Stopped is true only where its host has just been asked, and says that it is off.
	Stopped bool
	// Unreachable says that its host was asked, and does not answer.
	Unreachable bool
}

// Label names it, whether its name is known or not.
func (v VM) Label() string {
	if v.Name == "" {
		return fmt.Sprintf("VM %d", v.ID)
	}

	return v.Name
}

// VMs lists everything with a VMID that the credentials may see, as the cluster knows it.
func (c *Client) VMs(ctx context.Context) ([]VM, error) {
	var resources proxmox.ClusterResources
	if err := c.get(ctx, "/cluster/resources?type=vm", &resources); err != nil {
		return nil, err
	}

	var found []VM

	for _, r := range resources {
		found = append(found, VM{
			ID: int(r.VMID), Name: r.Name, Host: r.Node, Template: r.Template == 1, Container: r.Type == "lxc",
			MemoryMiB: int(r.MaxMem >> 20),
			Tags:      tagsIn(r.Tags), Pool: r.Pool,
		})
	}

	return found, nil
}

// VMsOn lists the VMs and templates of a host as the host knows them; no containers.
func (c *Client) VMsOn(ctx context.Context, host string) ([]VM, error) {
	var all []statusOfVM
	if err := c.get(ctx, fmt.Sprintf("/nodes/%s/qemu", host), &all); err != nil {
		return nil, err
	}

	found := make([]VM, len(all))
	for i, s := range all {
		found[i] = s.of(host)
	}

	return found, nil
}

// statusOfVM is what a host says of a VM.
type statusOfVM struct {
	VMID     int64  `json:"vmid"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	Template int    `json:"template"`
	MaxMem   int64  `json:"maxmem"`
	Tags     string `json:"tags"`
	// HA is empty where high availability does not manage the VM.
	HA struct {
		State string `json:"state"`
	} `json:"ha"`
}

func (s statusOfVM) of(host string) VM {
	return VM{
		ID: int(s.VMID), Name: s.Name, Host: host, Template: s.Template == 1, Stopped: s.Status == "stopped",
		MemoryMiB: int(s.MaxMem >> 20),
		Tags:      tagsIn(s.Tags),
	}
}

func tagsIn(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ';' || c == ',' || c == ' ' })
}

// VMConfig is what of a VM's configuration the program looks at.
type VMConfig struct {
	// Disks by position, with their size in GiB, rounded up; 0 means that Proxmox VE does not say.
	Disks map[string]int
	// CDROMs are what is in the CD-ROM drives, by position; "none" in one that is empty.
	CDROMs map[string]string
	// Machine is "q35" or "i440fx", whatever version of it. Firmware and SCSIController are as Proxmox VE names them; its
	// defaults where the VM states none.
	Machine, Firmware, SCSIController string
	// CloudInit is where the cloud-init drive is, UserData what it takes from files; empty without.
	CloudInit, UserData string
	// UUID is what the VM says of itself by SMBIOS; empty where it states none.
	UUID string
	// Protection keeps the VM from being removed.
	Protection bool
	// Devices of the host that are passed through.
	Devices []Device
	// Settings are all settings as Proxmox VE keeps them, by key.
	Settings map[string]string
}

// Device is passed through to a VM: by the name of a resource mapping, or by its addresses.
type Device struct {
	// Key is where the VM has it, such as hostpci0.
	Key     string
	Mapping string
	BDFs    []string
}

var (
	deviceKey = regexp.MustCompile(`^hostpci\d+$`)

	diskKey  = regexp.MustCompile(`^(scsi|virtio|sata|ide)\d+$`)
	diskSize = regexp.MustCompile(`(?:^|,)size=(\d+)([MGT])(?:,|$)`)
	// cloudInitDrive is how Proxmox VE names the volume of a cloud-init drive.
	cloudInitDrive = regexp.MustCompile(`(^|[:/])vm-\d+-cloudinit(\.\w+)?$`)

	// ownVolume is how Proxmox VE names the volumes of a VM.
	ownVolume = regexp.MustCompile(`^[^/:,]+:(?:[^,]*/)?vm-(\d+)-`)

	uuidOf = regexp.MustCompile(`(?:^|,)uuid=([^,]+)`)
)

// Config returns the configuration of a VM.
func (c *Client) Config(ctx context.Context, vm VM) (VMConfig, error) {
	var config map[string]any
	if err := c.get(ctx, qemu(vm)+"/config", &config); err != nil {
		return VMConfig{}, err
	}

	found := VMConfig{
		Disks:   map[string]int{},
		Machine: machineType(textOr(config["machine"], "pc")), Firmware: textOr(config["bios"], "seabios"),
		SCSIController: textOr(config["scsihw"], "lsi"),
		// A number, or a text of one.
		Protection: fmt.Sprint(config["protection"]) == "1",
		UserData:   textOr(config["cicustom"], ""),
		Settings:   settingsOf(config),
	}

	if m := uuidOf.FindStringSubmatch(textOr(config["smbios1"], "")); m != nil {
		found.UUID = m[1]
	}

	for _, key := range slices.Sorted(maps.Keys(config)) {
		text, ok := config[key].(string)

		switch {
		case ok && deviceKey.MatchString(key):
			found.Devices = append(found.Devices, deviceOf(key, text))
		case ok && diskKey.MatchString(key) && !isCDROM(text):
			found.Disks[key] = sizeGiB(text)
		}
	}

	found.CDROMs = CDROMs(found.Settings)
	for key, volume := range found.CDROMs {
		if cloudInitDrive.MatchString(volume) {
			found.CloudInit = key
		}
	}

	return found, nil
}

// CDROMs are what is in the CD-ROM drives of a VM with these settings, by position; "none" in one that is empty.
func CDROMs(settings map[string]string) map[string]string {
	found := map[string]string{}

	for key, text := range settings {
		if diskKey.MatchString(key) && isCDROM(text) {
			found[key], _, _ = strings.Cut(text, ",")
		}
	}

	return found
}

func isCDROM(setting string) bool { return strings.Contains(setting, "media=cdrom") }

// OwnsVolume says that Proxmox VE deletes the volume of a disk with a VM: its name has the VMID. The setting is that of
// the disk. Volumes of other VMIDs and disks of the host stay.
func OwnsVolume(vmid int, setting string) bool {
	m := ownVolume.FindStringSubmatch(setting)

	return m != nil && m[1] == strconv.Itoa(vmid)
}

// Process is the number of the process that runs a VM on its host: another one after each start, and 0 while it is off.
func (c *Client) Process(ctx context.Context, vm VM) (int, error) {
	var status struct {
		PID int `json:"pid"`
	}

	err := c.get(ctx, qemu(vm)+"/status/current", &status)

	return status.PID, err
}

// deviceOf reads "0000:01:00.0;0000:01:00.1,pcie=1", whose first part may be "host=..." or "mapping=...".
func deviceOf(key, text string) Device {
	properties := Properties(text)
	if mapping := properties["mapping"]; mapping != "" {
		return Device{Key: key, Mapping: mapping}
	}

	return Device{Key: key, BDFs: strings.Split(textOr(properties["host"], properties[""]), ";")}
}

// Properties reads a setting of several parts, "key=value,key=value"; a part without a key has the empty one.
func Properties(text string) map[string]string {
	found := map[string]string{}

	for _, part := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			key, value = "", part
		}

		found[key] = value
	}

	return found
}

func qemu(vm VM) string { return fmt.Sprintf("/nodes/%s/qemu/%d", vm.Host, vm.ID) }

// settingsOf are settings as texts, whatever Proxmox VE sends them as.
func settingsOf(config map[string]any) map[string]string {
	settings := make(map[string]string, len(config))
	for key, value := range config {
		settings[key] = setting(value)
	}

	return settings
}

func setting(value any) string {
	if number, ok := value.(float64); ok {
		return strconv.FormatFloat(number, 'f', -1, 64)
	}

	return fmt.Sprint(value)
}

func textOr(value any, fallback string) string {
	if text, ok := value.(string); ok && text != "" {
		return text
	}

	return fallback
}

// machineType leaves out the version: "pc-q35-9.0", "pc-i440fx-9.0", "pc".
func machineType(name string) string {
	if strings.Contains(name, "q35") {
		return "q35"
	}

	return "i440fx"
}

func sizeGiB(drive string) int {
	m := diskSize.FindStringSubmatch(drive)
	if m == nil {
		return 0
	}

	n, _ := strconv.Atoi(m[1]) // digits, by the pattern

	switch m[2] {
	case "M":
		return (n + 1023) / 1024
	case "T":
		return n * 1024
	default:
		return n
	}
}

// Find returns the VM, template or container with a VMID, as its host knows it; false when there is none.
func (c *Client) Find(ctx context.Context, vmid int) (VM, bool, error) {
	v, now, err := c.current(ctx, vmid)

	switch {
	case errors.Is(err, ErrHostUnreachable) && v.ID != 0:
		v.Unreachable = true

		return v, true, nil
	case err != nil || v.ID == 0:
		return VM{}, false, err
	case v.Container:
		return v, true, nil
	default:
		return now.of(v.Host), true, nil
	}
}

// current is the VM with a VMID, as the cluster knows it, and what its host says of it, unless it is a container. The
// VM has no VMID when there is none.
func (c *Client) current(ctx context.Context, vmid int) (VM, statusOfVM, error) {
	var now statusOfVM

	all, err := c.VMs(ctx)

	i := slices.IndexFunc(all, func(v VM) bool { return v.ID == vmid })

	switch {
	case i < 0:
		return VM{}, now, err
	case all[i].Container:
		return all[i], now, nil
	}

	err = c.get(ctx, qemu(all[i])+"/status/current", &now)

	return all[i], now, err
}

// Link is a network interface as the guest agent reports it.
type Link struct {
	Name, MAC string
	Addresses []netip.Addr
}

// Links returns what the guest agent of a running VM reports. It is an error when no agent answers.
func (c *Client) Links(ctx context.Context, vm VM) ([]Link, error) {
	var reply struct {
		Result []proxmox.AgentNetworkIface `json:"result"`
	}

	if err := c.get(ctx, qemu(vm)+"/agent/network-get-interfaces", &reply); err != nil {
		return nil, err
	}

	var links []Link

	for _, iface := range reply.Result {
		link := Link{Name: iface.Name, MAC: iface.HardwareAddress}

		for _, address := range iface.IPAddresses {
			if a, err := netip.ParseAddr(address.IPAddress); err == nil {
				link.Addresses = append(link.Addresses, a)
			}
		}

		links = append(links, link)
	}

	return links, nil
}

// AddressesOf are the addresses inside a network that the link with a MAC address has. One that it may hold and is not
// its own is left out; it may be invalid. An agent reports much, in an order that means nothing: lo, the pods' network,
// virtual addresses.
func AddressesOf(mac string, links []Link, network netip.Prefix, except netip.Addr) []netip.Addr {
	var found []netip.Addr

	for _, link := range links {
		if !strings.EqualFold(link.MAC, mac) {
			continue
		}

		for _, a := range link.Addresses {
			if network.Contains(a) && a != except && !a.IsLinkLocalUnicast() && !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
	}

	return found
}

// GuestFile reads a file of a running VM through its guest agent, as root of the guest. It is an error when no agent
// answers, or the file is not there.
func (c *Client) GuestFile(ctx context.Context, vm VM, path string) (string, error) {
	var reply struct {
		Content string `json:"content"`
	}

	err := c.get(ctx, qemu(vm)+"/agent/file-read"+query(url.Values{"file": {path}}), &reply)

	return reply.Content, err
}

// WriteGuestFile replaces the content of a file of a running VM through its guest agent, as root of the guest.
func (c *Client) WriteGuestFile(ctx context.Context, vm VM, path, content string) error {
	call := qemu(vm) + "/agent/file-write"

	return c.request(ctx, "POST", call, map[string]string{"file": path, "content": content}, nil)
}

func query(values url.Values) string { return "?" + values.Encode() }
