package talos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v4"
)

// link is one network interface as Talos sees it.
type link struct {
	name      string
	mac       string
	addresses []netip.Prefix
	routes    []netip.Addr // gateways
}

// linkName is the kernel's name of the nth virtio interface: the predictable one of the slot Proxmox VE gives it, or the
// old one when the kernel was told so.
func linkName(image *Image, i int) string {
	if v, ok := image.kernelArg("net.ifnames"); ok && v == "0" {
		return fmt.Sprintf("eth%d", i)
	}

	return fmt.Sprintf("ens%d", 18+i)
}

// platformNetwork is what the platform says about the network: META key 10 on metal, the cloud-init drive on nocloud.
// Neither platform looks at the other's source.
type platformNetwork struct {
	hostname  string
	resolvers []netip.Addr
	addresses map[string][]netip.Prefix // by link
	gateways  map[string][]netip.Addr
	dhcp      map[string]bool // links for which an operator was asked
}

func (n *node) platformNetwork() platformNetwork {
	p := platformNetwork{addresses: map[string][]netip.Prefix{}, gateways: map[string][]netip.Addr{}, dhcp: map[string]bool{}}

	switch n.image.Platform {
	case Metal:
		n.mu.Lock()
		raw := n.meta[meta.MetalNetworkPlatformConfig]
		n.mu.Unlock()

		p.fromMeta(raw, n.sys)
	case NoCloud:
		if n.hw.CloudInit != nil {
			p.fromCloudInit(n)
		}
	}

	return p
}

// fromMeta reads META key 10 with Talos' own type (Talos: platform/metal/metal.go, NetworkConfiguration).
func (p *platformNetwork) fromMeta(raw string, s *system) {
	if raw == "" {
		return
	}

	var spec network.PlatformConfigSpec
	if err := yaml.Unmarshal([]byte(raw), &spec); err != nil {
		s.log("failed to unmarshal metal network config from META: %v", err)

		return
	}

	for _, a := range spec.Addresses {
		p.addresses[a.LinkName] = append(p.addresses[a.LinkName], a.Address)
	}

	for _, r := range spec.Routes {
		if r.Gateway.IsValid() {
			p.gateways[r.OutLinkName] = append(p.gateways[r.OutLinkName], r.Gateway)
		}
	}

	for _, o := range spec.Operators {
		if o.Operator == network.OperatorDHCP4 {
			p.dhcp[o.LinkName] = true
		}
	}

	for _, r := range spec.Resolvers {
		p.resolvers = append(p.resolvers, r.DNSServers...)
	}

	for _, h := range spec.Hostnames {
		p.hostname = h.FQDN()
	}
}

func (p *platformNetwork) fromCloudInit(n *node) {
	ci := n.hw.CloudInit
	p.hostname, p.resolvers = ci.Hostname, ci.DNS

	for i := range n.hw.NICs {
		name := linkName(&n.image, i)

		if i < len(ci.Addresses) && ci.Addresses[i].IsValid() {
			p.addresses[name] = []netip.Prefix{ci.Addresses[i]}
		} else {
			p.dhcp[name] = true
		}

		if i < len(ci.Gateways) && ci.Gateways[i].IsValid() {
			p.gateways[name] = []netip.Addr{ci.Gateways[i]}
		}
	}
}

// bringUpNetwork gives the links their addresses, again whenever something changes, and as long as DHCP has none.
func (n *node) bringUpNetwork(ctx context.Context) {
	for {
		changed := n.kick.next()

		if !await(ctx, changed, !n.updateNetwork()) {
			return
		}
	}
}

// await waits for a change, or until DHCP is asked again while an address is pending; false means that the node stops.
func await(ctx context.Context, changed <-chan struct{}, pending bool) bool {
	var retry <-chan time.Time
	if pending {
		retry = time.After(leaseRetry)
	}

	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-retry:
	}

	return true
}

// updateNetwork brings links and names in line with what is configured. It reports false when a lease is still missing.
func (n *node) updateNetwork() bool {
	n.netmu.Lock()
	defer n.netmu.Unlock()

	links, complete := n.computeLinks()
	hostname, domain := n.computeHostname(links)

	n.mu.Lock()
	same := slices.EqualFunc(n.links, links, equalLink) && n.hostname == hostname && n.domain == domain
	n.links, n.hostname, n.domain = links, hostname, domain
	n.mu.Unlock()

	if !same {
		n.kick.notify()
	}

	return complete
}

// leaseRetry is how soon a DHCP client asks again.
const leaseRetry = 200 * time.Millisecond

func equalLink(a, b link) bool {
	return a.name == b.name && a.mac == b.mac && slices.Equal(a.addresses, b.addresses) && slices.Equal(a.routes, b.routes)
}

// computeLinks reports false when a DHCP lease is still missing.
func (n *node) computeLinks() ([]link, bool) {
	platform := n.platformNetwork()
	cfg := n.config()
	fromConfig := linksOf(cfg)
	complete := true

	var links []link

	for i, nic := range n.hw.NICs {
		l := link{name: linkName(&n.image, i), mac: nic.MAC}
		l.addresses = slices.Clone(platform.addresses[l.name])
		l.routes = slices.Clone(platform.gateways[l.name])
		configured := fromConfig.find(l)

		// DHCP runs on a link unless somebody said something else about it; a document about any link ends that for all
		dhcp := len(l.addresses) == 0 && (cfg == nil || cfg.RunDefaultDHCPOperators()) || platform.dhcp[l.name]

		if configured != nil {
			dhcp = configured.dhcp
			l.routes = append(l.routes, configured.gateways...)

			for _, a := range configured.addresses {
				if !slices.Contains(l.addresses, a) {
					l.addresses = append(l.addresses, a)
				}
			}
		}

		if dhcp {
			lease, ok := n.fw.opts.Lease(nic)
			if !ok {
				complete = false
			} else if !slices.Contains(l.addresses, lease) {
				l.addresses = append(l.addresses, lease)
			}
		}

		links = append(links, l)
	}

	return links, complete
}

// configuredLink is what the machine configuration says about a link.
type configuredLink struct {
	name, mac string
	addresses []netip.Prefix
	gateways  []netip.Addr
	dhcp      bool
}

type configuredLinks []*configuredLink

func (c configuredLinks) find(l link) *configuredLink {
	for _, x := range c {
		if x.name == l.name || x.mac != "" && strings.EqualFold(x.mac, l.mac) {
			return x
		}
	}

	return nil
}

// linksOf reads both ways of configuring links: machine.network.interfaces and the LinkConfig and DHCP documents.
func linksOf(cfg config.Provider) configuredLinks {
	if cfg == nil || cfg.Machine() == nil {
		return nil
	}

	var out configuredLinks

	for _, d := range cfg.Machine().Network().Devices() {
		if d.Ignore() {
			continue
		}

		c := &configuredLink{name: d.Interface(), dhcp: d.DHCP()}
		if s := d.Selector(); s != nil {
			c.mac = s.HardwareAddress()
		}

		for _, a := range d.Addresses() {
			if p, err := netip.ParsePrefix(a); err == nil {
				c.addresses = append(c.addresses, p)
			}
		}

		for _, r := range d.Routes() {
			if gw, err := netip.ParseAddr(r.Gateway()); err == nil {
				c.gateways = append(c.gateways, gw)
			}
		}

		out = append(out, c)
	}

	for _, d := range cfg.NetworkCommonLinkConfigs() {
		c := &configuredLink{name: d.Name()}
		for _, a := range d.Addresses() {
			c.addresses = append(c.addresses, a.Address())
		}

		for _, r := range d.Routes() {
			if gw := r.Gateway(); gw.IsPresent() {
				c.gateways = append(c.gateways, gw.ValueOrZero())
			}
		}

		out = append(out, c)
	}

	for _, d := range cfg.NetworkDHCPv4Configs() {
		if c := out.find(link{name: d.Name()}); c != nil {
			c.dhcp = true
		} else {
			out = append(out, &configuredLink{name: d.Name(), dhcp: true})
		}
	}

	return out
}

// computeHostname follows Talos' layers: configuration, then platform, then a default.
func (n *node) computeHostname(links []link) (string, string) {
	if cfg := n.config(); cfg != nil {
		if h := cfg.NetworkHostnameConfig(); h != nil {
			if h.Hostname() != "" {
				return splitHostname(h.Hostname())
			}
		}
	}

	if h := n.platformNetwork().hostname; h != "" {
		return splitHostname(h)
	}

	if cfg := n.config(); cfg != nil && cfg.NetworkHostnameConfig() != nil && cfg.NetworkHostnameConfig().AutoHostname() == nethelpers.AutoHostnameKindStable {
		return stableHostname(n.nodeID()), ""
	}

	for _, l := range links {
		for _, a := range l.addresses {
			return "talos-" + strings.NewReplacer(".", "-", ":", "").Replace(a.Addr().String()), ""
		}
	}

	return "talos", ""
}

func splitHostname(fqdn string) (string, string) {
	host, domain, _ := strings.Cut(strings.ToLower(fqdn), ".")

	return host, domain
}

// stableHostname is talos-xxx-yyy from the node's identity (Talos: controllers/network/hostname_config.go).
func stableHostname(id string) string {
	sum := sha256.Sum256([]byte(id))
	text := fmt.Sprintf("%08s", new(big.Int).SetBytes(sum[:8]).Text(36))

	return "talos-" + text[1:4] + "-" + text[4:7]
}

// nodeID identifies the installation in the discovery service. A real one is random and kept on STATE; here it follows
// from the machine, which is as stable and needs no keeping.
func (n *node) nodeID() string {
	sum := sha256.Sum256([]byte(n.hw.UUID + n.hw.Name))

	return new(big.Int).SetBytes(sum[:]).Text(62)
}

// allLinks returns the links with all addresses that are on them now, shared ones last.
func (n *node) allLinks() []link {
	n.mu.Lock()
	defer n.mu.Unlock()

	out := make([]link, len(n.links))
	for i, l := range n.links {
		out[i] = l
		out[i].addresses = slices.Clone(l.addresses)

		for ip, on := range n.held {
			if on == l.name {
				out[i].addresses = append(out[i].addresses, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}

	return out
}

// addresses are all that the node answers to, in the order of its links.
func (n *node) addresses() []netip.Prefix {
	var out []netip.Prefix
	for _, l := range n.allLinks() {
		out = append(out, l.addresses...)
	}

	return out
}

// ownAddresses are those without the shared ones.
func (n *node) ownAddresses() []netip.Prefix {
	n.mu.Lock()
	defer n.mu.Unlock()

	var out []netip.Prefix
	for _, l := range n.links {
		out = append(out, l.addresses...)
	}

	return out
}

func (n *node) fqdn() (host, fqdn string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.domain == "" {
		return n.hostname, n.hostname
	}

	return n.hostname, n.hostname + "." + n.domain
}

// owns tells whether an address or host name is the node's.
func (n *node) owns(target string) bool {
	host, fqdn := n.fqdn()
	if target == host || target == fqdn {
		return true
	}

	return slices.ContainsFunc(n.addresses(), func(p netip.Prefix) bool { return p.Addr().String() == target })
}

// serve keeps a port open on each address of the node: serve is called with each new listener, which it must close.
// Addresses outside 127/8 are shown but not served: the lab never leaves loopback.
func (n *node) serve(ctx context.Context, port int, serve func(net.Listener)) {
	open := map[netip.Addr]net.Listener{}

	for {
		changed := n.kick.next()
		pending := false
		own := map[netip.Addr]bool{}

		for _, p := range n.addresses() {
			a := p.Addr()
			own[a] = true

			if open[a] != nil || !a.IsLoopback() {
				continue
			}

			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
			if err != nil {
				pending = true // somebody else has the address, as a duplicate on a real network

				continue
			}

			open[a] = l
			serve(l)
		}

		for a, l := range open {
			if !own[a] {
				_ = l.Close()
				delete(open, a)
			}
		}

		if !await(ctx, changed, pending) {
			return
		}
	}
}
