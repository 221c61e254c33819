package talos

import (
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"

	"talos-proxmox/tests/lab/machine"
)

// agent answers for the QEMU guest agent, which Talos has as a system extension. It runs from maintenance mode on, and
// before the links have their addresses.
func (n *node) agent() []machine.Interface {
	if !n.hw.AgentDevice || !n.image.has("qemu-guest-agent") || !n.services.running("machined") {
		return nil
	}

	out := []machine.Interface{{Name: "lo", MAC: noMAC, Addresses: n.loopback()}}

	for _, name := range kernelLinks {
		i := machine.Interface{Name: name, MAC: noMAC}
		if name == "bond0" || name == "dummy0" {
			i.MAC = n.madeMAC(name)
		}

		out = append(out, i)
	}

	for _, l := range n.allLinks() {
		i := machine.Interface{Name: l.name, MAC: strings.ToLower(l.mac), Addresses: l.addresses}

		if l.virtual {
			out = append(out, i)

			continue
		}

		if len(i.Addresses) > 0 {
			i.Addresses = append(i.Addresses, uniqueLocal(l.mac))
		}

		i.Addresses = append(i.Addresses, linkLocal(l.mac))
		out = append(out, i)
	}

	return append(out, n.pluginLinks()...)
}

// noMAC is what a link without hardware shows.
const noMAC = "00:00:00:00:00:00"

// kernelLinks are made by Talos' kernel before those of the hardware, which they come before in the agent's list: it
// goes by the number of the link. Nothing is configured on them.
var kernelLinks = []string{"bond0", "dummy0", "teql0", "tunl0", "sit0", "ip6tnl0"}

// pluginLinks are what a network plugin adds to a node: its own links, with addresses of the pods' network, and a
// pod's.
func (n *node) pluginLinks() []machine.Interface {
	n.mu.Lock()
	in := n.kube.in
	n.mu.Unlock()

	if in == nil {
		return nil
	}

	plugin, obj := in.NetworkPlugin(n.nodename()), in.Node(n.nodename())
	if plugin == "" || obj == nil {
		return nil
	}

	subnet, err := netip.ParsePrefix(obj.Spec.PodCIDR)
	if err != nil {
		return nil
	}

	// made makes a link with an address of the subnet, or none but its own.
	made := func(name string, addresses ...netip.Prefix) machine.Interface {
		mac := n.madeMAC(name)

		return machine.Interface{Name: name, MAC: mac, Addresses: append(addresses, linkLocal(mac))}
	}

	first := subnet.Addr()

	if strings.Contains(plugin, "cilium") {
		return []machine.Interface{
			made("cilium_net"), made("cilium_host", netip.PrefixFrom(first.Next(), first.BitLen())), made("cilium_vxlan"),
			made("lxc_health"),
			made("lxc" + n.suffix("lxc", 12)),
		}
	}

	return []machine.Interface{
		made("flannel.1", netip.PrefixFrom(first, first.BitLen())),
		made("cni0", netip.PrefixFrom(first.Next(), subnet.Bits())),
		made("veth" + n.suffix("veth", 8)),
	}
}

// hash is a number that is the machine's own.
func (n *node) hash(text string) uint64 {
	sum := sha256.Sum256([]byte(n.hw.UUID + " " + text))

	return binary.BigEndian.Uint64(sum[:])
}

func (n *node) suffix(text string, length int) string {
	const hex = "0123456789abcdef"

	out := make([]byte, length)
	for i, number := 0, n.hash(text); i < length; i, number = i+1, number>>4 {
		out[i] = hex[number&0xf]
	}

	return string(out)
}

// madeMAC is a link's that no hardware stands behind.
func (n *node) madeMAC(name string) string {
	mac := make(net.HardwareAddr, 8)
	binary.BigEndian.PutUint64(mac, n.hash(name))
	mac[0] = mac[0]&^1 | 2 // one machine's, and made up

	return mac[:6].String()
}

// uniqueLocal is an fd00::/8 address that follows from the MAC. The loopback addresses of the lab do not count as
// global unicast ones, which is what a hypervisor's client looks for in a guest agent's answer. It comes with the
// link's first address: a client that saw it earlier would take it for all there is.
func uniqueLocal(mac string) netip.Prefix { return fromMAC([16]byte{0xfd, 0x1a, 0xb0}, mac) }

// linkLocal is the address that a link has before it has any other.
func linkLocal(mac string) netip.Prefix { return fromMAC([16]byte{0xfe, 0x80}, mac) }

func fromMAC(b [16]byte, mac string) netip.Prefix {
	if hw, err := net.ParseMAC(mac); err == nil && len(hw) == 6 {
		copy(b[8:], []byte{hw[0] ^ 2, hw[1], hw[2], 0xff, 0xfe, hw[3], hw[4], hw[5]})
	}

	return netip.PrefixFrom(netip.AddrFrom16(b), 64)
}
