package world

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// The property strings of a VM's settings, but for its drives and network devices (qemu-server: QemuServer.pm,
// Machine.pm, Memory.pm, CPUConfig.pm).
var (
	agentFormat = format{
		"enabled":             {schema: flag, main: true, required: true},
		"fstrim_cloned_disks": {schema: flag},
		"freeze-fs-on-backup": {schema: flag},
		"type":                {schema: oneOf("virtio", "isa")},
	}
	bootFormat = format{
		"legacy": {schema: matching(`[acdn]{1,4}`), main: true},
		"order":  {schema: schema{valid: bootDevices}},
	}
	ipFormat = format{
		"ip":  {schema: schema{valid: ipConfig("ipv4", netip.Addr.Is4, "dhcp", "manual")}},
		"gw":  {schema: schema{valid: ipAddress("IPv4", netip.Addr.Is4)}, requires: "ip"},
		"ip6": {schema: schema{valid: ipConfig("ipv6", netip.Addr.Is6, "auto", "dhcp", "manual")}},
		"gw6": {schema: schema{valid: ipAddress("IPv6", netip.Addr.Is6)}, requires: "ip6"},
	}
	machineFormat = format{
		"type": {
			schema: matching(
				`pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|q35|pc-q35-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|virt(?:-\d+(\.\d+)+)?(\+pve\d+)?`),
			main: true,
		},
		"viommu":    {schema: oneOf("intel", "virtio")},
		"enable-s3": {schema: flag}, "enable-s4": {schema: flag},
	}
	memoryFormat = format{"current": {schema: atLeast(16), main: true, required: true}}
	smbiosFormat = format{
		"uuid":    {schema: matching(uuidPattern)},
		"version": {schema: base64}, "serial": {schema: base64}, "manufacturer": {schema: base64},
		"product": {schema: base64},
		"sku":     {schema: base64}, "family": {schema: base64},
		"base64": {schema: flag},
	}
	vgaFormat = format{
		"type": {
			schema: oneOf(strings.Fields(
				"cirrus qxl qxl2 qxl3 qxl4 none serial0 serial1 serial2 serial3 std virtio virtio-gl vmware")...),
			main: true,
		},
		"memory":    {schema: between(4, 512)},
		"clipboard": {schema: oneOf("vnc")},
	}
	watchdogFormat = format{
		"model":  {schema: oneOf("i6300esb", "ib700"), main: true},
		"action": {schema: oneOf("reset", "shutdown", "poweroff", "pause", "debug", "none")},
	}
	cpuFormat = format{
		"cputype":        {main: true},
		"reported-model": {},
		"hidden":         {schema: flag},
		"hv-vendor-id":   {schema: matching(`[a-zA-Z0-9]{1,12}`)},
		"flags":          {schema: matching(`[+-][a-zA-Z0-9._-]+(;[+-][a-zA-Z0-9._-]+)*`)},
		"phys-bits":      {schema: matching(`host|\d+`)},
	}
)

const uuidPattern = `[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}`

// The values that are more than a property string, or other than one.
var (
	base64    = matching(`[A-Za-z0-9+/]+={0,2}`)
	cpuSchema = schema{format: cpuFormat, valid: cpuModel}
	hostName  = schema{maxLength: 255, valid: func(name string) string {
		if !dnsName.MatchString(name) {
			return "value does not look like a valid DNS name"
		}

		return ""
	}}
	hotplugSchema = schema{valid: func(features string) string {
		for _, feature := range splitList(features) {
			if features != "0" && features != "1" &&
				!slices.Contains([]string{"network", "disk", "cpu", "memory", "usb", "cloudinit"}, feature) {
				return fmt.Sprintf("value '%s' does not look like a valid hotplug feature list", features)
			}
		}

		return ""
	}}
	startupSchema = schema{valid: func(value string) string {
		for part := range strings.SplitSeq(value, ",") {
			if strings.TrimSpace(part) != "" && !startupPart.MatchString(part) {
				return "unable to parse startup options"
			}
		}

		return ""
	}}
	tagsSchema = schema{valid: func(tags string) string {
		for _, tag := range splitList(tags) {
			if !tagPattern.MatchString(tag) {
				return "invalid characters in tag"
			}
		}

		return ""
	}}
)

var (
	dnsName = regexp.MustCompile(
		`^([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$`)
	startupPart = regexp.MustCompile(`^((order=)?\d+|up=\d+|down=\d+)$`)
	tagPattern  = regexp.MustCompile(`(?i)^[a-z0-9_][a-z0-9_\-+.]*$`)
	bootable    = regexp.MustCompile(
		`^(ide[0-3]|sata[0-5]|scsi(\d|[12]\d|30)|(virtio|hostpci)(\d|1[0-5])|net(\d|[12]\d|3[01])|usb(\d|1[0-3]))$`)
)

// ValidName refuses what is not a DNS name.
func ValidName(field, name string) error {
	if wrong := hostName.complaint(field, name); wrong != "" {
		return Invalid(field, "%s", wrong)
	}

	return nil
}

func bootDevices(order string) string {
	for _, device := range splitList(order) {
		if !bootable.MatchString(device) {
			return fmt.Sprintf("invalid boot device '%s'", device)
		}
	}

	return ""
}

func ipConfig(family string, is func(netip.Addr) bool, words ...string) func(string) string {
	return func(value string) string {
		p, err := netip.ParsePrefix(value)
		if slices.Contains(words, value) || err == nil && is(p.Addr()) {
			return ""
		}

		return "value does not look like a valid " + family + " network configuration"
	}
}

func ipAddress(family string, is func(netip.Addr) bool) func(string) string {
	return func(value string) string {
		if a, err := netip.ParseAddr(value); err == nil && is(a) {
			return ""
		}

		return "value does not look like a valid " + family + " address"
	}
}

// The models that QEMU knows and that Proxmox VE adds, and the flags that a VM may have in addition to its model's.
var (
	cpuModels = strings.Fields(`x86-64-v2 x86-64-v2-AES x86-64-v3 x86-64-v4 486 pentium pentium2 pentium3 coreduo core2duo Conroe Penryn Nehalem
		Nehalem-IBRS Westmere Westmere-IBRS SandyBridge SandyBridge-IBRS IvyBridge IvyBridge-IBRS Haswell Haswell-IBRS Haswell-noTSX
		Haswell-noTSX-IBRS Broadwell Broadwell-IBRS Broadwell-noTSX Broadwell-noTSX-IBRS Skylake-Client Skylake-Client-IBRS
		Skylake-Client-noTSX-IBRS Skylake-Client-v4 Skylake-Server Skylake-Server-IBRS Skylake-Server-noTSX-IBRS Skylake-Server-v4
		Skylake-Server-v5 Cascadelake-Server Cascadelake-Server-v2 Cascadelake-Server-noTSX Cascadelake-Server-v4 Cascadelake-Server-v5
		Cooperlake Cooperlake-v2 KnightsMill Icelake-Client Icelake-Client-noTSX Icelake-Server Icelake-Server-noTSX Icelake-Server-v3
		Icelake-Server-v4 Icelake-Server-v5 Icelake-Server-v6 SapphireRapids SapphireRapids-v2 GraniteRapids athlon phenom Opteron_G1 Opteron_G2
		Opteron_G3 Opteron_G4 Opteron_G5 EPYC EPYC-IBPB EPYC-v3 EPYC-v4 EPYC-Rome EPYC-Rome-v2 EPYC-Rome-v3 EPYC-Rome-v4 EPYC-Milan EPYC-Milan-v2
		EPYC-Genoa host kvm32 kvm64 qemu32 qemu64 max`)
	cpuFlags = strings.Fields(
		`pcid spec-ctrl ibpb ssbd virt-ssbd amd-ssbd amd-no-ssb pdpe1gb md-clear hv-tlbflush hv-evmcs aes`)
)

// cpuModel checks what cpuFormat has let pass.
func cpuModel(value string) string {
	p, err := cpuFormat.parse("cpu", value)

	switch model := p["cputype"]; {
	case err != nil:
		return err.Error()
	case model == "":
		return "CPU is missing cputype"
	case strings.HasPrefix(model, "custom-"):
		return fmt.Sprintf("Custom cputype '%s' not found", model)
	case !slices.Contains(cpuModels, model):
		return fmt.Sprintf("Built-in cputype '%s' is not defined (missing 'custom-' prefix?)", model)
	case p["reported-model"] != "":
		return "Property 'reported-model' not allowed in VM-specific CPU config."
	}

	for flag := range strings.SplitSeq(p["flags"], ";") {
		if flag != "" && !slices.Contains(cpuFlags, flag[1:]) {
			return "VM-specific CPU flags must be a subset of: " + strings.Join(cpuFlags, ", ")
		}
	}

	return ""
}
