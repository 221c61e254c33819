package talosimage

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/machineconfig/encode"
	"talos-proxmox/components/plan"
)

const (
	// LinkName is what Linux calls the first link with net.ifnames=0, which the schematic carries for that reason.
	LinkName = "eth0"
	// routePriority leaves room on both sides for routes of the operator's.
	routePriority = 1024
)

// NetworkMeta is the value of META key 10 for a node: the network that Talos on metal sets up before anything else. The
// type is Talos' own; nocloud does not read it.
func NetworkMeta(p *plan.Plan, node plan.Node) (string, error) {
	family := nethelpers.FamilyInet4
	if node.Address.Is6() {
		family = nethelpers.FamilyInet6
	}

	config := network.PlatformConfigSpec{
		// Without it Talos would ask for an address by DHCP, too.
		Links: []network.LinkSpecSpec{{
			Name: LinkName, Type: nethelpers.LinkEther, Up: true,
			ConfigLayer: network.ConfigPlatform,
		}},
		Addresses: []network.AddressSpecSpec{{
			Address: netip.PrefixFrom(node.Address, p.Network.Bits()), LinkName: LinkName, Family: family,
			Scope: nethelpers.ScopeGlobal, Flags: nethelpers.AddressFlags(nethelpers.AddressPermanent),
			ConfigLayer: network.ConfigPlatform,
		}},
		Routes: []network.RouteSpecSpec{{
			Family: family, Gateway: p.Gateway, OutLinkName: LinkName, Table: nethelpers.TableMain, Priority: routePriority,
			Scope: nethelpers.ScopeGlobal, Type: nethelpers.TypeUnicast, Protocol: nethelpers.ProtocolStatic,
			ConfigLayer: network.ConfigPlatform,
		}},
		Hostnames: []network.HostnameSpecSpec{{Hostname: node.Name, ConfigLayer: network.ConfigPlatform}},
		Resolvers: []network.ResolverSpecSpec{{DNSServers: p.Nameservers, ConfigLayer: network.ConfigPlatform}},
	}

	text, err := yaml.Marshal(config)
	if err != nil {
		return "", err
	}

	// An empty destination is the default route: a value, not the lack of one.
	return encode.Pruned(text, "dst")
}
