package talos

import (
	"net"
	"net/netip"
	"slices"

	glob "github.com/ryanuber/go-glob"
	networkpb "github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/network"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/proto"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
)

// bareLinks are the links before anything is configured on them.
func (n *node) bareLinks() []link {
	links := make([]link, 0, len(n.hw.NICs))
	for i, nic := range n.hw.NICs {
		links = append(links, link{name: linkName(&n.image, i), mac: nic.MAC})
	}

	return links
}

// status is what Talos finds out of the ith link itself.
func (l link) status(i int) network.LinkStatusSpec {
	s := network.LinkStatusSpec{
		Index: uint32(i + 2), Type: nethelpers.LinkEther, MTU: 1500, OperationalState: nethelpers.OperStateUp,
		LinkState: true,
		Driver:    "virtio_net", BusPath: "0000:00:12.0", Alias: l.alias,
	}

	if l.virtual {
		s.Type, s.Kind, s.OperationalState, s.Driver, s.BusPath = nethelpers.LinkNone, "tun", nethelpers.OperStateUnknown, "",
			""
	}

	if mac, err := net.ParseMAC(l.mac); err == nil {
		s.HardwareAddr, s.PermanentAddr = nethelpers.HardwareAddr(mac), nethelpers.HardwareAddr(mac)
	}

	return s
}

// linkConfig is what the machine configuration says about a link.
type linkConfig struct {
	addresses     []netip.Prefix
	gateways      []netip.Addr
	dhcp, ignored bool
}

// configuredLinks are by the kernel's names.
type configuredLinks struct {
	links   map[string]*linkConfig
	aliases map[string]string
	shared  map[netip.Addr]string
}

// configuredLinks reads both ways of configuring links: machine.network.interfaces, and documents of their own, which
// may name a link by its alias (Talos: controllers/network, device_config.go, operator_config.go,
// operator_vip_config.go, link_alias_config.go).
func (n *node) configuredLinks(cfg config.Provider) configuredLinks {
	out := configuredLinks{links: map[string]*linkConfig{}, aliases: map[string]string{}, shared: map[netip.Addr]string{}}

	if cfg == nil || cfg.Machine() == nil {
		return out
	}

	links := n.bareLinks()
	out.alias(cfg, links, n.sys)

	for _, d := range cfg.Machine().Network().Devices() {
		for _, name := range out.named(d, links) {
			out.device(d, name)
		}
	}

	for _, d := range cfg.NetworkCommonLinkConfigs() {
		c := out.link(out.resolve(d.Name()))

		for _, a := range d.Addresses() {
			c.addresses = append(c.addresses, a.Address())
		}

		for _, r := range d.Routes() {
			if gw := r.Gateway(); gw.IsPresent() {
				c.gateways = append(c.gateways, gw.ValueOrZero())
			}
		}
	}

	for _, d := range cfg.NetworkDHCPv4Configs() {
		out.link(out.resolve(d.Name())).dhcp = true
	}

	for _, v := range cfg.NetworkVirtualIPConfigs() {
		out.shared[v.VIP()] = out.resolve(v.Link())
	}

	return out
}

func (c configuredLinks) link(name string) *linkConfig {
	if c.links[name] == nil {
		c.links[name] = &linkConfig{}
	}

	return c.links[name]
}

// alias gives links the names that the configuration has for them. A selector that fits several links names none.
func (c configuredLinks) alias(cfg config.Provider, links []link, s *system) {
	for _, a := range cfg.NetworkLinkAliasConfigs() {
		var found []string

		for i, l := range links {
			var spec networkpb.LinkStatusSpec

			status := network.NewLinkStatus(network.NamespaceName, l.name)
			*status.TypedSpec() = l.status(i)

			err := proto.ResourceSpecToProto(status, &spec)
			if err == nil {
				var fits bool
				if fits, err = a.LinkSelector().EvalBool(celenv.LinkLocator(), map[string]any{"link": &spec}); fits {
					found = append(found, l.name)
				}
			}

			if err != nil {
				s.log("error evaluating link selector: %v", err)
			}
		}

		if len(found) == 1 && c.aliases[found[0]] == "" {
			c.aliases[found[0]] = a.Name()
		}
	}
}

// resolve is the kernel's name of a link that may be named by its alias.
func (c configuredLinks) resolve(name string) string {
	for link, alias := range c.aliases {
		if alias == name {
			return link
		}
	}

	return name
}

// named are the links that an entry of machine.network.interfaces is about.
func (c configuredLinks) named(d talosconfig.Device, links []link) []string {
	if d.Selector() == nil {
		return []string{c.resolve(d.Interface())}
	}

	var names []string

	for i, l := range links {
		if selects(d.Selector(), l.status(i)) {
			names = append(names, l.name)
		}
	}

	return names
}

// selects compares texts, whose case matters; one that is not given fits.
func selects(s talosconfig.NetworkDeviceSelector, link network.LinkStatusSpec) bool {
	given := false

	for _, pair := range [][2]string{
		{s.HardwareAddress(), link.HardwareAddr.String()},
		{s.PermanentAddress(), link.PermanentAddr.String()},
		{s.PCIID(), link.PCIID},
		{s.KernelDriver(), link.Driver},
		{s.Bus(), link.BusPath},
	} {
		if pair[0] == "" {
			continue
		}

		if !glob.Glob(pair[0], pair[1]) {
			return false
		}

		given = true
	}

	if s.Physical() != nil {
		return *s.Physical() == link.Physical()
	}

	return given
}

func (c configuredLinks) device(d talosconfig.Device, name string) {
	l := c.link(name)

	if d.Ignore() {
		l.ignored = true

		return
	}

	l.dhcp = l.dhcp || d.DHCP() && d.DHCPOptions().IPv4()

	for _, a := range d.Addresses() {
		if p, err := netip.ParsePrefix(a); err == nil && !slices.Contains(l.addresses, p) {
			l.addresses = append(l.addresses, p)
		}
	}

	for _, r := range d.Routes() {
		if gw, err := netip.ParseAddr(r.Gateway()); err == nil {
			l.gateways = append(l.gateways, gw)
		}
	}

	if v := d.VIPConfig(); v != nil {
		if ip, err := netip.ParseAddr(v.IP()); err == nil {
			c.shared[ip] = name
		}
	}
}
