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

	"github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v4"
)

// link is one network interface as Talos sees it.
type link struct {
	name      string
	alias     string
	mac       string
	virtual   bool
	addresses []netip.Prefix
	routes    []netip.Addr // gateways
}

// linkName is the kernel's name of the nth virtio interface: the predictable one of the slot Proxmox VE gives it, or
// the old one when the kernel was told so.
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
	links     map[string]bool // that it sets up
	dhcp      map[string]bool // links for which an operator was asked
}

func (n *node) platformNetwork() platformNetwork {
	p := platformNetwork{
		addresses: map[string][]netip.Prefix{}, gateways: map[string][]netip.Addr{},
		links: map[string]bool{}, dhcp: map[string]bool{},
	}

	switch n.image.Platform {
	case Metal:
		n.mu.Lock()
		raw := n.meta[meta.MetalNetworkPlatformConfig]
		n.mu.Unlock()

		p.fromMeta(raw, n.sys)
	case NoCloud:
		// Talos looks for a drive of that name only
		if n.hw.CloudInit != nil && n.hw.CloudInit.Format == NoCloud {
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

	for _, l := range spec.Links {
		p.links[l.Name] = true
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
		p.links[name] = true

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
	return a.name == b.name && a.alias == b.alias && a.mac == b.mac && slices.Equal(a.addresses, b.addresses) &&
		slices.Equal(a.routes, b.routes)
}

// computeLinks reports false when a DHCP lease is still missing.
func (n *node) computeLinks() ([]link, bool) {
	platform := n.platformNetwork()
	cfg := n.config()
	configured := n.configuredLinks(cfg)
	complete := true

	var links []link

	for i, l := range n.bareLinks() {
		l.addresses = slices.Clone(platform.addresses[l.name])
		l.routes = slices.Clone(platform.gateways[l.name])
		l.alias = configured.aliases[l.name]

		// DHCP runs on a link that no document names; a document about any link ends that for all. An address in
		// META is not about a link.
		dhcp := !platform.links[l.name] && (cfg == nil || cfg.RunDefaultDHCPOperators()) || platform.dhcp[l.name]

		if c := configured.links[l.name]; c != nil {
			dhcp = c.dhcp || platform.dhcp[l.name] && !c.ignored
			l.routes = append(l.routes, c.gateways...)

			for _, a := range c.addresses {
				if !slices.Contains(l.addresses, a) {
					l.addresses = append(l.addresses, a)
				}
			}
		}

		if dhcp {
			lease, ok := n.fw.opts.Lease(n.hw.NICs[i])
			if !ok {
				complete = false
			} else if !slices.Contains(l.addresses, lease) {
				l.addresses = append(l.addresses, lease)
			}
		}

		links = append(links, l)
	}

	if l, ok := n.tailnetLink(); ok {
		links = append(links, l)
	}

	return links, complete
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

	if cfg := n.config(); cfg != nil && cfg.NetworkHostnameConfig() != nil &&
		cfg.NetworkHostnameConfig().AutoHostname() == nethelpers.AutoHostnameKindStable {
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

		for _, a := range n.lanAddresses() {
			own[a] = true

			if open[a] != nil || !a.IsLoopback() {
				continue
			}

			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
			if err != nil {
				pending = true // another machine has the address, as a duplicate on a real network

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
