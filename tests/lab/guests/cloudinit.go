package guests

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/tests/lab/machine"
)

// formats of cloud-init drives by their volume's name (qemu-server: Cloudinit.pm).
var formats = map[string]string{"cidata": "nocloud", "config-2": "configdrive2"}

// networkConfig is the first version of cloud-init's network configuration, as far as Proxmox VE writes it.
type networkConfig struct {
	Config []struct {
		Type    string
		Subnets []struct{ Type, Address, Netmask, Gateway string }
		Address addresses
	}
}

// addresses are one or several.
type addresses []string

func (a *addresses) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*a = addresses{n.Value}

		return nil
	}

	return n.Decode((*[]string)(a))
}

// readCloudInit reads a cloud-init drive. The program that does it is of the package whose genisoimage writes the drive on hosts.
func readCloudInit(path string) (*machine.CloudInit, error) {
	description, err := isoinfo("-d", "-i", path)
	if err != nil {
		return nil, err
	}

	ci := &machine.CloudInit{}

	for line := range strings.Lines(description) {
		if label, found := strings.CutPrefix(line, "Volume id: "); found {
			ci.Format = formats[strings.TrimSpace(label)]
		}
	}

	if ci.Format != "nocloud" {
		return ci, nil // nothing here looks for another
	}

	if ci.UserData, err = isoinfo("-R", "-i", path, "-x", "/user-data"); err != nil {
		return nil, err
	}

	network, err := isoinfo("-R", "-i", path, "-x", "/network-config")
	if err != nil {
		return nil, err
	}

	var names struct{ Hostname string }
	if strings.HasPrefix(ci.UserData, "#cloud-config") {
		if err := yaml.Unmarshal([]byte(ci.UserData), &names); err != nil {
			return nil, fmt.Errorf("user-data: %w", err)
		}
	}

	ci.Hostname = names.Hostname

	return ci, setNetwork(ci, []byte(network))
}

func isoinfo(args ...string) (string, error) {
	out, err := exec.Command("isoinfo", args...).Output()
	if err != nil {
		return "", fmt.Errorf("isoinfo %s (of Debian's package genisoimage): %w", strings.Join(args, " "), err)
	}

	return string(out), nil
}

// setNetwork takes over what the drive says about the network.
func setNetwork(ci *machine.CloudInit, text []byte) error {
	var config networkConfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("network-config: %w", err)
	}

	for _, c := range config.Config {
		switch c.Type {
		case "physical":
			var (
				address netip.Prefix
				gateway netip.Addr
			)

			for _, s := range c.Subnets {
				if s.Type != "static" {
					continue
				}

				a, err := netip.ParseAddr(s.Address)
				if err != nil {
					return fmt.Errorf("network-config: %w", err)
				}

				ones, _ := net.IPMask(net.ParseIP(s.Netmask).To4()).Size()
				address = netip.PrefixFrom(a, ones)
				gateway, _ = netip.ParseAddr(s.Gateway) // there need not be one
			}

			ci.Addresses, ci.Gateways = append(ci.Addresses, address), append(ci.Gateways, gateway)
		case "nameserver":
			for _, text := range c.Address {
				if a, err := netip.ParseAddr(text); err == nil {
					ci.DNS = append(ci.DNS, a)
				}
			}
		}
	}

	return nil
}
