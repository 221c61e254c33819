package world

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/machine"
)

var networkModels = strings.Fields("e1000 e1000-82540em e1000-82544gc e1000-82545em e1000e i82551 i82557b i82559er " +
	"ne2k_isa ne2k_pci pcnet rtl8139 virtio vmxnet3")

// networkFormat is the schema of netN.
var networkFormat = format{
	"model":     {schema: oneOf(networkModels...), main: true, required: true},
	"macaddr":   {schema: macAddress},
	"bridge":    {schema: matching(`[-_.\w\d]+`)},
	"queues":    {schema: between(0, 64)},
	"rate":      {schema: schema{form: number}},
	"tag":       {schema: between(1, 4094)},
	"trunks":    {schema: matching(`\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*`)},
	"firewall":  {schema: flag},
	"link_down": {schema: flag},
	"mtu":       {schema: between(1, 65520)},
}

var (
	unicastMAC = regexp.MustCompile(`^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$`)
	macAddress = schema{valid: func(mac string) string {
		if !unicastMAC.MatchString(mac) {
			return "value does not look like a valid unicast MAC address"
		}

		return ""
	}}
)

// parseNetwork reads a network device. "virtio=BC:24:11:00:00:01" says model and address in one.
func parseNetwork(key, value string) (properties, error) {
	var words []string

	for word := range strings.SplitSeq(value, ",") {
		if model, mac, ok := strings.Cut(word, "="); ok && slices.Contains(networkModels, model) {
			word = "model=" + model + ",macaddr=" + mac
		}

		words = append(words, word)
	}

	p, err := networkFormat.parse(key, strings.Join(words, ","))
	if err != nil {
		return nil, Invalid(key, "invalid format - %s", err)
	}

	return p, nil
}

// vnet is the path of the network of a device: its bridge, or the VLAN that it has there (pve-guest-common:
// check_vnet_access).
func (p properties) vnet() string {
	path := "/sdn/zones/localnetwork/" + p["bridge"]
	if p["tag"] != "" {
		path += "/" + p["tag"]
	}

	return path
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
