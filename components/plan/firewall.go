package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/spec"
)

// The ports that CNIs need between nodes (Talos: Ingress Firewall; Cilium: System Requirements, Firewall Rules).
const (
	flannelVXLAN = 4789
	ciliumVXLAN  = 8472
	ciliumHealth = 4240
	ciliumHubble = 4244
)

// tailnetRanges are where Tailscale and Headscale take addresses from.
var tailnetRanges = []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd7a:115c:a1e0::/48")}

func (r *resolver) checkFirewall(p *Plan) {
	f := r.spec.Firewall
	r.apiFrom = r.prefixes("firewall.apiFrom", f.APIFrom)
	names := map[string]bool{}

	if _, given := r.spec.Cluster.CNI.Values["ipam"]; given && *f.Enabled {
		r.warn("cluster.cni.values.ipam", "may give pods addresses that the firewalls do not know: they let in "+
			constants.DefaultIPv4PodCIDR, "",
			"state other networks of pods in firewall.open")
	}

	for i, o := range f.Open {
		path := at("firewall.open", i)

		if !isLabel(o.Name) {
			r.problems.Add(path+".name", "must be a DNS label: lower case letters, digits and dashes", o.Name, "rename it")
		} else if names[o.Name] {
			r.problems.Add(path+".name", "is another opening's too", o.Name, "rename one of the two")
		}

		names[o.Name] = true
		o.Protocol = cmp.Or(o.Protocol, spec.ProtocolTCP)
		oneOf(r, path+".protocol", o.Protocol, spec.ProtocolTCP, spec.ProtocolUDP)

		if o.Pools != nil && len(o.Pools) == 0 {
			r.problems.Add(path+".pools", "must name a pool: the rule would apply to none", "[]",
				"leave it out for all pools, or remove the rule")
		}

		for j, name := range o.Pools {
			if _, ok := r.spec.Pools[name]; !ok {
				r.problems.Add(at(path+".pools", j), "is not a pool", name, "name one of pools")
			}
		}

		r.ingressRules = append(r.ingressRules, ingressRule{pools: o.Pools, Ingress: Ingress{
			Name: "open-" + o.Name, Protocol: o.Protocol, Ports: r.ports(path+".ports", o.Ports),
			From: r.prefixes(path+".from", o.From),
		}})
	}

	switch {
	case !p.Firewall && f.Open != nil:
		r.warn("firewall.open", "opens nothing: no firewall is set up", "", "set firewall.enabled, or leave it out")
	case !p.Firewall && f.APIFrom != nil:
		r.warn("firewall.apiFrom", "closes nothing: no firewall is set up", "", "set firewall.enabled, or leave it out")
	case p.Firewall && p.CNI == spec.CNINone:
		r.warn("cluster.cni.name", "leaves open nothing for the network between pods: the firewalls do not know it",
			string(p.CNI),
			"name its ports in firewall.open")
	case p.Firewall && ownTransport(p.CNIValues):
		r.warn("cluster.cni.values",
			"change how Cilium carries traffic between nodes, and the firewalls let in its VXLAN only", "",
			"name the ports in firewall.open")
	}
}

// ownTransport says whether values of Cilium change what passes between nodes.
func ownTransport(values map[string]any) bool {
	for _, key := range []string{"routingMode", "tunnelProtocol", "tunnelPort", "encryption"} {
		if _, ok := values[key]; ok {
			return true
		}
	}

	return false
}

// prefixes reads networks; none mean the network of the nodes.
func (r *resolver) prefixes(path string, texts []string) []netip.Prefix {
	var found []netip.Prefix

	for i, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			r.problems.Add(at(path, i), "must be a network in CIDR form", text, "write it like 192.168.0.0/24")
		}

		found = append(found, prefix.Masked())
	}

	if len(found) == 0 && r.network.IsValid() {
		return []netip.Prefix{r.network}
	}

	return found
}

func (r *resolver) ports(path string, text spec.Range) []Ports {
	spans, ok := parseNumbers(text)
	slices.SortFunc(spans, func(a, b interval[int]) int { return a.first - b.first })

	var found []Ports

	for i, s := range spans {
		if s.first < 1 || s.last > 65535 || i > 0 && s.first <= spans[i-1].last {
			ok = false

			break
		}

		found = append(found, Ports{uint16(s.first), uint16(s.last)})
	}

	if !ok {
		r.problems.Add(path, "must be ports from 1 to 65535 that do not overlap", string(text),
			"write it like 80,443 or 30000-32767")
	}

	return found
}

// openPools decides what the nodes of each pool let in: what Kubernetes and what runs it need, from where they need it
// (Talos: Network Connectivity and Ingress Firewall; Kubernetes: Ports and Protocols), and what the operator opens.
func (r *resolver) openPools(p *Plan) {
	if !p.Firewall || !r.network.IsValid() {
		return
	}

	all, control := r.openTalos(p)
	if r.isK3s() {
		all, control = r.openK3s(p)
	}

	for i := range p.Pools {
		pool := &p.Pools[i]
		pool.Ingress, pool.LoadBalancer = slices.Clone(all), p.LoadBalancer

		if pool.Role == spec.RoleControlPlane {
			pool.Ingress = append(pool.Ingress, control...)
		}

		for _, o := range r.ingressRules {
			if o.pools == nil || slices.Contains(o.pools, pool.Name) {
				pool.Ingress = append(pool.Ingress, o.Ingress)
			}
		}
	}
}

// openTalos is what nodes of Talos let in, and control planes in addition.
func (r *resolver) openTalos(p *Plan) (all, control []Ingress) {
	nodes := []netip.Prefix{r.network}
	// A pod that speaks to the node it runs on comes with its own address.
	pods := append(slices.Clone(nodes), netip.MustParsePrefix(constants.DefaultIPv4PodCIDR))
	api := distinct(append(slices.Clone(nodes), r.apiFrom...))
	kubernetes := distinct(append(slices.Clone(pods), r.apiFrom...))

	if t := r.spec.Tailscale; t != nil && t.AdvertiseEndpoint {
		// The control plane that has the address does not forward: it sees the caller's own.
		for _, tailnet := range tailnetRanges {
			if tailnet.Addr().Is6() == p.VIP.Is6() {
				kubernetes = distinct(append(kubernetes, tailnet))
			}
		}
	}

	all = []Ingress{
		{"apid", spec.ProtocolTCP, one(constants.ApidPort), api},
		{"kubelet", spec.ProtocolTCP, one(constants.KubeletPort), pods},
		{"icmp", spec.ProtocolICMP, nil, nodes},
	}

	switch p.CNI {
	case spec.CNIFlannel:
		all = append(all, Ingress{"flannel-vxlan", spec.ProtocolUDP, one(flannelVXLAN), nodes})
	case spec.CNICilium:
		all = append(all,
			Ingress{"cilium-vxlan", spec.ProtocolUDP, one(ciliumVXLAN), nodes},
			Ingress{"cilium-health", spec.ProtocolTCP, one(ciliumHealth), nodes},
			Ingress{"cilium-hubble", spec.ProtocolTCP, one(ciliumHubble), pods},
		)
	case spec.CNINone:
	}

	all = append(all, openLoadBalancer(p, nodes)...)

	control = []Ingress{
		{"trustd", spec.ProtocolTCP, one(constants.TrustdPort), nodes},
		{"kube-apiserver", spec.ProtocolTCP, one(constants.DefaultControlPlanePort), kubernetes},
		{"etcd", spec.ProtocolTCP, []Ports{{constants.EtcdClientPort, constants.EtcdPeerPort}}, etcdMembers(p, nodes)},
	}

	return all, control
}

// The ports that addresses for Services need (MetalLB: Requirements; RFC 4271).
const (
	memberlist = 7946
	bgp        = 179
)

// openLoadBalancer lets in what announces addresses of Services.
func openLoadBalancer(p *Plan, nodes []netip.Prefix) []Ingress {
	var (
		all     []Ingress
		routers []netip.Prefix
	)

	if p.LoadBalancer == nil {
		return nil
	}

	if p.CNI == spec.CNIFlannel {
		all = append(all, Ingress{"metallb-tcp", spec.ProtocolTCP, one(memberlist), nodes},
			Ingress{"metallb-udp", spec.ProtocolUDP, one(memberlist), nodes})
	}

	for _, peer := range p.LoadBalancer.Peers {
		if a, err := netip.ParseAddr(peer.Address); err == nil {
			routers = append(routers, netip.PrefixFrom(a, a.BitLen()))
		}
	}

	if routers != nil {
		all = append(all, Ingress{"bgp", spec.ProtocolTCP, one(bgp), routers})
	}

	return all
}

// etcdMembers are the control planes one by one; otherwise where they are, when an address is not known in advance.
func etcdMembers(p *Plan, otherwise []netip.Prefix) []netip.Prefix {
	var members []netip.Prefix

	for _, n := range p.ControlPlanes() {
		if !n.Address.IsValid() {
			return otherwise
		}

		members = append(members, netip.PrefixFrom(n.Address, n.Address.BitLen()))
	}

	return members
}

func one(port uint16) []Ports { return []Ports{{port, port}} }

// distinct drops networks that lie within others.
func distinct(all []netip.Prefix) []netip.Prefix {
	var kept []netip.Prefix

	for i, p := range all {
		within := slices.ContainsFunc(all, func(o netip.Prefix) bool { return o.Bits() < p.Bits() && o.Contains(p.Addr()) })
		if !within && !slices.Contains(all[:i], p) {
			kept = append(kept, p)
		}
	}

	return kept
}

// String is "80" or "30000-32767".
func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}

	return strconv.Itoa(int(p.First)) + "-" + strconv.Itoa(int(p.Last))
}

// openK3s is what nodes let in, and control planes in addition: of the world the Kubernetes API and SSH, and from each
// other what K3s says that it needs. Agents reach servers by the port of the API.
func (r *resolver) openK3s(p *Plan) (all, control []Ingress) {
	nodes := []netip.Prefix{r.network}
	pods := append(slices.Clone(nodes), p.K3s.Pods)
	api := distinct(append(slices.Clone(nodes), r.apiFrom...))

	all = []Ingress{
		{"ssh", spec.ProtocolTCP, one(sshPort), api},
		{"kubelet", spec.ProtocolTCP, one(constants.KubeletPort), pods},
		{"icmp", spec.ProtocolICMP, nil, nodes},
		{"flannel-vxlan", spec.ProtocolUDP, one(k3sVXLAN), nodes},
	}
	all = append(all, openLoadBalancer(p, nodes)...)
	control = []Ingress{
		{
			"kube-apiserver", spec.ProtocolTCP, one(constants.DefaultControlPlanePort),
			distinct(append(slices.Clone(pods), r.apiFrom...)),
		},
		{"etcd", spec.ProtocolTCP, []Ports{{constants.EtcdClientPort, constants.EtcdPeerPort}}, etcdMembers(p, nodes)},
	}

	return all, control
}

// The ports of K3s in addition to those of Kubernetes (K3s: Requirements, Inbound Rules).
const (
	k3sVXLAN = 8472
	sshPort  = 22
)
