package spec

import "net/netip"

// Network is the network of the nodes.
type Network struct {
	// How nodes get their addresses: static (written to the image or the cloud-init drive), reserved (DHCP, by MAC
	// address), agent (DHCP, read from the guest agent), reported (known from elsewhere, or unknown). Absent:
	// static, or reserved for metal templates and ISO files, which cannot hold an address.
	Addressing Addressing `json:"addressing,omitempty" jsonschema:"enum=static,enum=reserved,enum=agent,enum=reported"`
	// The network of the nodes, for example 10.0.0.0/16.
	CIDR string `json:"cidr"`
	// Address of the router, with IPv6 also a link-local one. Required with addressing static.
	Gateway string `json:"gateway,omitempty"`
	// DNS servers, with addressing static. Absent: 1.1.1.1 and 8.8.8.8.
	Nameservers []string `json:"nameservers,omitempty"`
	// Time servers, addresses or names. Absent: Talos' own, time.cloudflare.com.
	TimeServers []string `json:"timeServers,omitempty"`
	// Bridge of the network interfaces.
	Bridge string `json:"bridge,omitempty" jsonschema:"default=vmbr0"`
	// VLAN tag. Absent: untagged.
	VLAN int `json:"vlan,omitempty" jsonschema:"minimum=1,maximum=4094"`
	// MTU of the network interfaces; 1 means the bridge's. Absent: 1500 on Proxmox VE 8, the bridge's on 9.
	MTU int `json:"mtu,omitempty" jsonschema:"minimum=1,maximum=65520"`
}

// Addressing is how a node's address is known.
type Addressing string

// The ways of addressing.
const (
	AddressingStatic   Addressing = "static"
	AddressingReserved Addressing = "reserved"
	AddressingAgent    Addressing = "agent"
	AddressingReported Addressing = "reported"
)

// Holds says that all addresses of a network are in another.
func Holds(network, other netip.Prefix) bool {
	return network.Bits() <= other.Bits() && network.Contains(other.Addr())
}
