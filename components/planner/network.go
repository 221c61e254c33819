package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/planner/ranges"
	"talos-proxmox/components/spec"
)

func (r *resolver) checkNetwork(p *plan.Plan) {
	n := r.Spec.Network

	r.checkCIDR()
	p.Network = r.network

	if r.IsK3s() {
		r.checkK3sNetwork(p.K3s)
	}

	if n.Gateway != "" {
		r.checkGateway()
	} else if n.Addressing == spec.AddressingStatic || r.writesAddresses {
		r.Problems.Add("network.gateway", `is required with addressing "static"`, "", "set the router's address")
	}

	p.Gateway = r.gateway

	static := n.Addressing == spec.AddressingStatic || r.writesAddresses

	if static && n.Nameservers == nil {
		n.Nameservers = []string{"1.1.1.1", "8.8.8.8"}
	} else if !static && n.Nameservers != nil {
		r.Problems.Add("network.nameservers", "come with DHCP unless addressing is static", strings.Join(n.Nameservers, ", "),
			"leave them out")
	}

	for i, text := range n.Nameservers {
		a, err := netip.ParseAddr(text)
		if err != nil {
			r.Problems.Add(checks.At("network.nameservers", i), "must be an address", text, "write it like 1.1.1.1")
		}

		p.Nameservers = append(p.Nameservers, a)
	}

	other := func(a netip.Addr) bool { return a.IsValid() && a.Is4() != r.network.Addr().Is4() }
	if r.network.IsValid() && len(p.Nameservers) > 0 && allOf(p.Nameservers, other) {
		r.Warn("network.nameservers", "are of another IP version than network.cidr "+r.network.String()+
			": the nodes reach them only if they have addresses of both", strings.Join(n.Nameservers, ", "),
			"set DNS servers of the network's version, such as 2606:4700:4700::1111 with IPv6")
	}

	r.checkLink("network.bridge", n.Bridge)
	r.CheckBounds("network.vlan", n.VLAN, 0, 4094)
	r.checkMTU("network.mtu", n.MTU)
}

func (r *resolver) checkCIDR() {
	text := r.Spec.Network.CIDR
	prefix, err := netip.ParsePrefix(text)

	switch {
	case text == "":
		r.Problems.Add("network.cidr", "is required", "", "set the network of the nodes, for example 10.0.0.0/16")
	case err != nil:
		r.Problems.Add("network.cidr", "must be a network in CIDR form", text, "write it like 10.0.0.0/16")
	case prefix != prefix.Masked():
		r.Problems.Add("network.cidr", "must be the network's first address", text, "write "+prefix.Masked().String())
	case prefix.Bits() == 0:
		r.Problems.Add("network.cidr", "must not be the whole of the Internet", text,
			"set the network that the nodes are in")
	default:
		r.network = prefix
	}
}

func (r *resolver) checkGateway() {
	text := r.Spec.Network.Gateway
	gateway, err := netip.ParseAddr(text)

	switch {
	case err != nil || gateway.Zone() != "":
		r.Problems.Add("network.gateway", "must be an address", text, "write it like 10.0.0.1")
	case r.network.IsValid() && !r.network.Contains(gateway) &&
		// A router of IPv6 is known by its link-local address.
		!(r.network.Addr().Is6() && gateway.Is6() && gateway.IsLinkLocalUnicast()):
		r.Problems.Add("network.gateway", "must lie inside network.cidr "+r.network.String(), text, "correct one of the two")
	default:
		r.gateway = gateway
	}
}

// unusable says why no node can have an address of the network; it is empty when one can.
func (r *resolver) unusable(a netip.Addr) string {
	switch {
	case !r.network.Contains(a):
		return "must lie inside network.cidr " + r.network.String()
	case a == r.network.Addr() && r.network.Bits() < a.BitLen()-1:
		return "must not be the network's own address"
	case a == r.broadcast():
		return "must not be the network's broadcast address"
	case a == r.gateway:
		return "must not be the gateway"
	default:
		return ""
	}
}

// broadcast is invalid where a network has none.
func (r *resolver) broadcast() netip.Addr {
	n := r.network
	if !n.IsValid() || !n.Addr().Is4() || n.Bits() >= 31 {
		return netip.Addr{}
	}

	return ranges.AddressAt(ranges.Interval[netip.Addr]{First: n.Addr()}, 1<<(32-n.Bits())-1)
}

func (r *resolver) checkLink(path, name string) {
	if !checks.LinkName.MatchString(name) {
		r.Problems.Add(path, "must be the name of a bridge", name, "write it like vmbr0")
	}
}

func (r *resolver) checkMTU(path string, mtu int) {
	if mtu != 0 && mtu != 1 && (mtu < 576 || mtu > 65520) {
		r.Problems.Add(path, "must be 1, for the MTU of the bridge, or lie between 576 and 65520", strconv.Itoa(mtu),
			"correct it")
	}
}

// checkK3sNetwork checks that the networks of pods and services have room, and keeps them apart and nodes out of them.
// One that holds these and much else does no harm by itself.
func (r *resolver) checkK3sNetwork(k *plan.PlannedK3s) {
	nodes := 0
	for _, p := range r.pools {
		nodes += len(p.members)
	}

	// What Kubernetes gives a node, and the most and the least that it takes for services (kube-controller-manager:
	// node-cidr-mask-size; kube-apiserver: service-cluster-ip-range).
	perNode, most, least := 24, 12, 28
	if k.Pods.Addr().Is6() {
		perNode = 64
	}

	if k.Services.Addr().Is6() {
		most, least = 108, 124
	}

	if room := perNode - k.Pods.Bits(); room < 0 || room < 31 && nodes > 1<<room {
		r.Problems.Add("k3s.clusterCIDR", fmt.Sprintf("must have a /%d for each node: there are %d", perNode, nodes),
			k.Pods.String(), "choose a larger network")
	}

	if bits := k.Services.Bits(); bits < most || bits > least {
		r.Problems.Add("k3s.serviceCIDR", fmt.Sprintf("must have a prefix length from %d to %d", most, least),
			k.Services.String(), "choose another network")
	}

	if k.Pods.Addr().Is4() != k.Services.Addr().Is4() {
		r.Problems.Add("k3s.serviceCIDR", "must be of the IP version of k3s.clusterCIDR "+k.Pods.String(),
			k.Services.String(), "set both")
	} else {
		r.checkK3sIPVersion(k)
	}

	if k.Pods.Overlaps(k.Services) {
		r.Problems.Add("k3s.serviceCIDR", "overlaps the network of pods "+k.Pods.String(), k.Services.String(),
			"choose another network")
	}

	for _, own := range []netip.Prefix{k.Pods, k.Services} {
		if r.network.IsValid() && spec.Holds(own, r.network) {
			r.Problems.Add("network.cidr", "must lie outside of "+own.String()+", which K3s has for pods and services",
				r.network.String(),
				"give the nodes another network")
		}
	}
}

// checkK3sIPVersion: K3s ends where its networks are not of the IP version of its node's address (K3s:
// pkg/agent/config). Where it is told neither, it chooses both after that address.
func (r *resolver) checkK3sIPVersion(k *plan.PlannedK3s) {
	if !r.network.IsValid() || r.network.Addr().Is4() == k.Pods.Addr().Is4() {
		return
	}

	rule := "must be of the IP version of network.cidr " + r.network.String()

	switch {
	case k.Pods == plan.K3sPods && k.Services == plan.K3sServices:
		r.Warn("k3s.clusterCIDR", rule+": with addresses of IPv6, K3s takes "+plan.K3sPodsIPv6+" and "+plan.K3sServicesIPv6+
			" for pods and services, and the firewalls and the checks know "+k.Pods.String()+" and "+k.Services.String(), "",
			"for a new cluster, set clusterCIDR and serviceCIDR, for example to these two")
	case r.Spec.Network.Addressing == spec.AddressingAgent: // a node may have addresses of both
		r.Warn("k3s.clusterCIDR", rule+", unless nodes have addresses of both", k.Pods.String(),
			"choose networks of that version for pods and services")
	default:
		r.Problems.Add("k3s.clusterCIDR", rule+": K3s does not start otherwise", k.Pods.String(),
			"choose networks of that version for pods and services")
	}
}

// checkK3sAddresses: pods and services would hide what has an address of their networks.
func (r *resolver) checkK3sAddresses(p *plan.Plan) {
	if !r.IsK3s() {
		return
	}

	all := allFixedAddresses(p)

	for _, own := range []netip.Prefix{p.K3s.Pods, p.K3s.Services} {
		pods, reported := own == p.K3s.Pods, map[string]bool{}

		for _, a := range all {
			if a.In(own, r.network) && (pods || a.Node) && !reported[a.Path] {
				reported[a.Path] = true

				r.Problems.Add(a.Path, "must lie outside of "+own.String()+", which K3s has for pods and services", a.Value,
					"choose another address")
			}
		}
	}
}

// allFixedAddresses are those of the plan, and of all its nodes.
func allFixedAddresses(p *plan.Plan) []plan.FixedAddress {
	all := p.FixedAddresses()

	for _, pool := range p.Pools {
		for _, n := range pool.Nodes {
			if a, ok := pool.FixedAddress(n); ok {
				all = append(all, a)
			}
		}
	}

	return all
}

// ciliumPods is where Cilium takes the networks of pods from with IPAM of its own, unless it is told others (Cilium:
// Cluster Scope, ipam.operator.clusterPoolIPv4PodCIDRList).
var ciliumPods = netip.MustParsePrefix("10.0.0.0/8")

// checkCiliumPools: pods of networks that Cilium gives out by itself would hide nodes and what is around them (Cilium:
// "you will lose connectivity to other nodes"). Without values of the operator, Kubernetes gives them out.
func (r *resolver) checkCiliumPools(p *plan.Plan) {
	const path = "cluster.cni.values.ipam"

	ipam, _ := p.CNIValues["ipam"].(map[string]any)
	if mode, _ := ipam["mode"].(string); mode != "cluster-pool" || !r.network.IsValid() {
		return
	}

	operator, _ := ipam["operator"].(map[string]any)

	for _, key := range []string{"clusterPoolIPv4PodCIDRList", "clusterPoolIPv6PodCIDRList"} {
		for i, text := range textsOf(operator[key]) {
			at := checks.At(path+".operator."+key, i)

			pool, err := netip.ParsePrefix(text)
			if err != nil {
				r.Problems.Add(at, "must be a network in CIDR form", text, "write it like 10.244.0.0/16")

				continue
			}

			r.checkCiliumPool(p, at, pool.Masked())
		}
	}

	if len(textsOf(operator["clusterPoolIPv4PodCIDRList"])) == 0 && ciliumPods.Overlaps(r.network) {
		r.Warn(path, "gives pods networks of "+ciliumPods.String()+", which overlaps network.cidr "+r.network.String(),
			"cluster-pool", "set operator.clusterPoolIPv4PodCIDRList to networks that nothing else uses, or leave ipam out")
	}
}

func (r *resolver) checkCiliumPool(p *plan.Plan, path string, pool netip.Prefix) {
	const remedy = "choose a network that nothing else uses"

	// One within the network of the nodes does no harm by itself.
	if spec.Holds(pool, r.network) {
		r.Problems.Add(path, "must not hold that of the nodes, network.cidr "+r.network.String(), pool.String(), remedy)

		return
	}

	all := allFixedAddresses(p)

	if i := slices.IndexFunc(all, func(a plan.FixedAddress) bool { return a.In(pool, r.network) }); i >= 0 {
		r.Problems.Add(path, "must not hold "+all[i].Value+" of "+all[i].Path, pool.String(), remedy)
	}
}

// textsOf are the elements of a list, which Helm also takes as one text with spaces or commas.
func textsOf(value any) []string {
	var all []string

	switch v := value.(type) {
	case nil:
	case []any:
		for _, one := range v {
			all = append(all, fmt.Sprint(one))
		}
	default:
		all = strings.FieldsFunc(fmt.Sprint(v), func(c rune) bool { return c == ' ' || c == ',' })
	}

	return all
}
