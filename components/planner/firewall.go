package planner

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/planner/ranges"
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

func (r *resolver) checkFirewall(p *plan.Plan) {
	f := r.Spec.Firewall
	r.apiFrom = r.Prefixes("firewall.apiFrom", f.APIFrom, r.network)
	names := map[string]bool{}

	for i, from := range r.apiFrom {
		if p.Firewall && from.IsValid() && from.Bits() == 0 {
			r.Warn(checks.At("firewall.apiFrom", i), "lets every address reach "+r.managed(), from.String(),
				"name the networks that need it")
		}
	}

	if _, given := r.Spec.Cluster.CNI.Values["ipam"]; given && *f.Enabled {
		r.Warn("cluster.cni.values.ipam", "may give pods addresses that the firewalls block: they allow "+
			constants.DefaultIPv4PodCIDR, "",
			"allow other networks of pods in firewall.open")
	}

	for i, o := range f.Open {
		path := checks.At("firewall.open", i)

		if !checks.IsLabel(o.Name) {
			r.Problems.Add(path+".name", "must be a DNS label: lower case letters, digits and dashes", o.Name, "rename it")
		} else if names[o.Name] {
			r.Problems.Add(path+".name", "is also the name of another rule", o.Name, "rename one of the two")
		}

		names[o.Name] = true
		o.Protocol = cmp.Or(o.Protocol, spec.ProtocolTCP)
		checks.OneOf(&r.Problems, path+".protocol", o.Protocol, spec.ProtocolTCP, spec.ProtocolUDP)

		if o.Pools != nil && len(o.Pools) == 0 {
			r.Problems.Add(path+".pools", "must name a pool: the rule would apply to none", "[]",
				"leave it out for all pools, or remove the rule")
		}

		for j, name := range o.Pools {
			if _, ok := r.Spec.Pools[name]; !ok {
				r.Problems.Add(checks.At(path+".pools", j), "is not a pool", name, "name one of pools")
			}
		}

		r.ingressRules = append(r.ingressRules, ingressRule{pools: o.Pools, Ingress: plan.Ingress{
			Name: plan.OpenName(o.Name), Protocol: o.Protocol, Ports: r.ports(path+".ports", o.Ports),
			From: r.Prefixes(path+".from", o.From, r.network),
		}})
	}

	switch {
	case !p.Firewall && f.Open != nil:
		r.Warn("firewall.open", "has no effect: no firewall is set up", "", "set firewall.enabled, or leave it out")
	case !p.Firewall && f.APIFrom != nil:
		r.Warn("firewall.apiFrom", "has no effect: no firewall is set up", "", "set firewall.enabled, or leave it out")
	case p.Firewall && p.CNI == spec.CNINone:
		r.Warn("cluster.cni.name", "opens no ports for the network between pods, because the firewalls do not know "+
			"which ones it uses",
			string(p.CNI),
			"name its ports in firewall.open")
	case p.Firewall && ownTransport(p.CNIValues):
		r.Warn("cluster.cni.values",
			"change how Cilium carries traffic between nodes, and the firewalls allow only its VXLAN", "",
			"name the ports in firewall.open")
	}
}

// managed is what firewall.apiFrom opens.
func (r *resolver) managed() string {
	if r.IsK3s() {
		return "the Kubernetes API, and SSH of the nodes"
	}

	return "the Talos and Kubernetes APIs"
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

func (r *resolver) ports(path string, text spec.Range) []plan.Ports {
	spans, ok := ranges.ParseNumbers(text)
	slices.SortFunc(spans, func(a, b ranges.Interval[int]) int { return a.First - b.First })

	var found []plan.Ports

	for i, s := range spans {
		if s.First < 1 || s.Last > 65535 || i > 0 && s.First <= spans[i-1].Last {
			ok = false

			break
		}

		found = append(found, plan.Ports{First: uint16(s.First), Last: uint16(s.Last)})
	}

	if !ok {
		r.Problems.Add(path, "must be ports from 1 to 65535 that do not overlap", string(text),
			"write it like 80,443 or 30000-32767")
	}

	return found
}

// openPools decides what the nodes of each pool let in: what Kubernetes and what runs it need, from where they need it
// (Talos: Network Connectivity and Ingress Firewall; Kubernetes: Ports and Protocols), and what the operator opens.
func (r *resolver) openPools(p *plan.Plan) {
	if !p.Firewall || !r.network.IsValid() {
		return
	}

	all, control := r.openTalos(p)
	if r.IsK3s() {
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
func (r *resolver) openTalos(p *plan.Plan) (all, control []plan.Ingress) {
	nodes := []netip.Prefix{r.network}
	// A pod that speaks to the node it runs on comes with its own address.
	pods := append(slices.Clone(nodes), netip.MustParsePrefix(constants.DefaultIPv4PodCIDR))
	api := distinct(append(slices.Clone(nodes), r.apiFrom...))
	kubernetes := distinct(append(slices.Clone(pods), r.apiFrom...))

	if t := r.Spec.Tailscale; t != nil && t.AdvertiseEndpoint {
		// The control plane that has the address does not forward: it sees the caller's own.
		for _, tailnet := range tailnetRanges {
			if tailnet.Addr().Is6() == p.VIP.Is6() {
				kubernetes = distinct(append(kubernetes, tailnet))
			}
		}
	}

	all = []plan.Ingress{
		{Name: "apid", Protocol: spec.ProtocolTCP, Ports: one(constants.ApidPort), From: api},
		{Name: "kubelet", Protocol: spec.ProtocolTCP, Ports: one(constants.KubeletPort), From: pods},
		{Name: "icmp", Protocol: spec.ProtocolICMP, Ports: nil, From: nodes},
	}

	switch p.CNI {
	case spec.CNIFlannel:
		all = append(all, plan.Ingress{
			Name: "flannel-vxlan", Protocol: spec.ProtocolUDP, Ports: one(flannelVXLAN), From: nodes,
		})
	case spec.CNICilium:
		all = append(all,
			plan.Ingress{Name: "cilium-vxlan", Protocol: spec.ProtocolUDP, Ports: one(ciliumVXLAN), From: nodes},
			plan.Ingress{Name: "cilium-health", Protocol: spec.ProtocolTCP, Ports: one(ciliumHealth), From: nodes},
			plan.Ingress{Name: "cilium-hubble", Protocol: spec.ProtocolTCP, Ports: one(ciliumHubble), From: pods},
		)
	case spec.CNINone:
	}

	all = append(all, openLoadBalancer(p, nodes)...)

	control = []plan.Ingress{
		{Name: "trustd", Protocol: spec.ProtocolTCP, Ports: one(constants.TrustdPort), From: nodes},
		{Name: "kube-apiserver", Protocol: spec.ProtocolTCP, Ports: one(constants.DefaultControlPlanePort), From: kubernetes},
		{
			Name: "etcd", Protocol: spec.ProtocolTCP, From: etcdMembers(p, nodes),
			Ports: []plan.Ports{{First: constants.EtcdClientPort, Last: constants.EtcdPeerPort}},
		},
	}

	return all, control
}

// The ports that addresses for Services need (MetalLB: Requirements; RFC 4271).
const (
	memberlist = 7946
	bgp        = 179
)

// openLoadBalancer lets in what announces addresses of Services.
func openLoadBalancer(p *plan.Plan, nodes []netip.Prefix) []plan.Ingress {
	var (
		all     []plan.Ingress
		routers []netip.Prefix
	)

	if p.LoadBalancer == nil {
		return nil
	}

	if p.CNI == spec.CNIFlannel {
		all = append(all, plan.Ingress{Name: "metallb-tcp", Protocol: spec.ProtocolTCP, Ports: one(memberlist), From: nodes},
			plan.Ingress{Name: "metallb-udp", Protocol: spec.ProtocolUDP, Ports: one(memberlist), From: nodes})
	}

	for _, peer := range p.LoadBalancer.Peers {
		if a, err := netip.ParseAddr(peer.Address); err == nil {
			routers = append(routers, netip.PrefixFrom(a, a.BitLen()))
		}
	}

	if routers != nil {
		all = append(all, plan.Ingress{Name: "bgp", Protocol: spec.ProtocolTCP, Ports: one(bgp), From: routers})
	}

	return all
}

// etcdMembers are the control planes one by one; otherwise where they are, when an address is not known in advance.
func etcdMembers(p *plan.Plan, fallback []netip.Prefix) []netip.Prefix {
	var members []netip.Prefix

	for _, n := range p.ControlPlanes() {
		if !n.Address.IsValid() {
			return fallback
		}

		members = append(members, netip.PrefixFrom(n.Address, n.Address.BitLen()))
	}

	return members
}

func one(port uint16) []plan.Ports { return []plan.Ports{{First: port, Last: port}} }

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

// openK3s is what nodes let in, and control planes in addition: of the world the Kubernetes API and SSH, and from each
// other what K3s says that it needs. Agents reach servers by the port of the API.
func (r *resolver) openK3s(p *plan.Plan) (all, control []plan.Ingress) {
	nodes := []netip.Prefix{r.network}
	pods := append(slices.Clone(nodes), p.K3s.Pods)
	api := distinct(append(slices.Clone(nodes), r.apiFrom...))

	all = []plan.Ingress{
		{Name: "ssh", Protocol: spec.ProtocolTCP, Ports: one(sshPort), From: api},
		{Name: "kubelet", Protocol: spec.ProtocolTCP, Ports: one(constants.KubeletPort), From: pods},
		{Name: "icmp", Protocol: spec.ProtocolICMP, Ports: nil, From: nodes},
		{Name: "flannel-vxlan", Protocol: spec.ProtocolUDP, Ports: one(k3sVXLAN), From: nodes},
	}
	all = append(all, openLoadBalancer(p, nodes)...)
	control = []plan.Ingress{
		{
			Name: "kube-apiserver", Protocol: spec.ProtocolTCP, Ports: one(constants.DefaultControlPlanePort),
			From: distinct(append(slices.Clone(pods), r.apiFrom...)),
		},
		{
			Name: "etcd", Protocol: spec.ProtocolTCP, From: etcdMembers(p, nodes),
			Ports: []plan.Ports{{First: constants.EtcdClientPort, Last: constants.EtcdPeerPort}},
		},
	}

	return all, control
}

// The ports of K3s in addition to those of Kubernetes (K3s: Requirements, Inbound Rules).
const (
	k3sVXLAN = 8472
	sshPort  = 22
)
