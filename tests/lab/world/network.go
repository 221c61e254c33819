package world

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/machine"
)

var (
	networkKeys   = strings.Fields("bridge firewall link_down macaddr model mtu queues rate tag trunks")
	networkModels = strings.Fields("e1000 e1000e i82551 i82557b i82559er ne2k_pci pcnet rtl8139 virtio vmxnet3")
	unicastMAC    = regexp.MustCompile(`^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$`)
)

// parseNetwork reads a network device. "virtio=BC:24:11:00:00:01" says model and address in one.
func parseNetwork(key, value string) (properties, error) {
	p, ok := parseProperties(value, "model")
	if !ok {
		return nil, Invalid(key, "unable to parse network options")
	}

	for _, name := range sortedKeys(p) {
		if slices.Contains(networkModels, name) {
			p["model"], p["macaddr"] = name, p[name]
			delete(p, name)
		} else if !slices.Contains(networkKeys, name) {
			return nil, Invalid(key,
				"invalid format - format error\n%s.%s: property is not defined in schema and the schema does not allow additional properties", key, name)
		}
	}

	if !slices.Contains(networkModels, p["model"]) {
		return nil, Invalid(key, "invalid format - format error\n%s.model: value '%s' does not have a value in the enumeration '%s'",
			key, p["model"], strings.Join(networkModels, ", "))
	}

	if mac, ok := p["macaddr"]; ok && !unicastMAC.MatchString(mac) {
		return nil, Invalid(key, "invalid format - format error\n%s.macaddr: value does not look like a valid unicast MAC address", key)
	}

	if tag, ok := p["tag"]; ok {
		if n, err := strconv.Atoi(tag); err != nil || n < 1 || n > 4094 {
			return nil, Invalid(key, "invalid format - format error\n%s.tag: value must have a maximum value of 4094", key)
		}
	}

	return p, nil
}

// printNetwork writes a network device as Proxmox VE keeps it: model and address first, the rest in order.
func printNetwork(p properties) string {
	out := properties{"": p["model"] + "=" + p["macaddr"]}

	for key, value := range p {
		if key != "model" && key != "macaddr" {
			out[key] = value
		}
	}

	return out.print("")
}

// normaliseNetwork gives a device without address a random one, from the range that Proxmox VE owns.
func (w *World) normaliseNetwork(key, value string) (string, error) {
	p, err := parseNetwork(key, value)
	if err != nil {
		return "", err
	}

	if p["macaddr"] == "" {
		p["macaddr"] = w.newMAC()
	}

	return printNetwork(p), nil
}

func (w *World) newMAC() string {
	b := make([]byte, 3)
	_, _ = rand.Read(b)

	return fmt.Sprintf("BC:24:11:%02X:%02X:%02X", b[0], b[1], b[2])
}

// nics is the network hardware of a configuration, in order.
func nics(conf map[string]string) []machine.NIC {
	var list []machine.NIC

	for i := range options["net"].count {
		value, ok := conf["net"+strconv.Itoa(i)]
		if !ok {
			continue
		}

		p, err := parseNetwork("net", value)
		if err != nil {
			continue
		}

		list = append(list, machine.NIC{MAC: strings.ToUpper(p["macaddr"]), Bridge: p["bridge"], VLAN: intOf(p, "tag", 0)})
	}

	return list
}

// verifyIPConfig checks the address settings of the cloud-init drive.
func verifyIPConfig(key, value string) error {
	p, _ := parseProperties(value, "ip")

	if ip, ok := p["ip"]; ok && ip != "dhcp" {
		if _, err := netip.ParsePrefix(ip); err != nil {
			return Invalid(key, "invalid format - format error\n%s.ip: value does not look like a valid IPv4/CIDR configuration", key)
		}
	}

	if gw, ok := p["gw"]; ok {
		if net.ParseIP(gw).To4() == nil {
			return Invalid(key, "invalid format - format error\n%s.gw: value does not look like a valid ipv4 address", key)
		}

		if p["ip"] == "" {
			return Invalid(key, "invalid format - format error\n%s.gw: missing required property 'ip'", key)
		}
	}

	return nil
}
