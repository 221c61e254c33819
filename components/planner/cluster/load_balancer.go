package cluster

import (
	"cmp"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
	"talos-proxmox/components/spec"
)

// checkLoadBalancer: the addresses of Services belong to nothing else.
func (r *Resolver) checkLoadBalancer(p *plan.Plan) {
	const path = "cluster.cni.loadBalancer"

	given := r.Spec.Cluster.CNI.LoadBalancer
	if given == nil {
		return
	}

	lb := &plan.PlannedLoadBalancer{LoadBalancer: *given}
	lb.Mode = cmp.Or(lb.Mode, spec.LoadBalancerL2)
	p.LoadBalancer = lb

	if r.IsK3s() && !slices.Contains(p.K3s.Disable, "servicelb") {
		r.Problems.Add(path, "cannot be combined with the load balancer of K3s", "", "add servicelb to k3s.disable")
	}

	if p.CNI == spec.CNINone {
		r.Problems.Add(path, "needs Cilium or Flannel", string(p.CNI), "set cluster.cni.name to one of them")
	}

	if p.CNI == spec.CNICilium && p.KubeProxy && lb.Mode == spec.LoadBalancerL2 {
		r.Problems.Add(path+".mode", "l2 needs Cilium without kube-proxy", string(lb.Mode),
			"set cluster.cni.kubeProxy to false, or use bgp")
	}

	if len(lb.Addresses) == 0 {
		r.Problems.Add(path+".addresses", "is required", "", "write it like [10.0.0.200-10.0.0.220]")
	}

	for i, text := range lb.Addresses {
		span, err := netipx.ParseIPRange(text)
		if prefix, no := netip.ParsePrefix(text); no == nil {
			span, err = netipx.RangeOfPrefix(prefix), nil
		}

		switch in := checks.At(path+".addresses", i); {
		case err != nil:
			r.Problems.Add(in, "must be a network or a range of addresses", text, "write it like 10.0.0.200-10.0.0.220")
		case lb.Mode == spec.LoadBalancerL2 && p.Network.IsValid() &&
			!(p.Network.Contains(span.From()) && p.Network.Contains(span.To())):
			r.Problems.Add(in, "must lie in network.cidr "+p.Network.String()+" with mode l2", text,
				"choose addresses of that network, or use bgp")
		default:
			lb.Ranges = append(lb.Ranges, span)
		}
	}

	lb.Clients = r.Prefixes(path+".from", lb.From, p.Network)

	if !p.Firewall && lb.From != nil {
		r.Warn(path+".from", "has no effect: no firewall is set up", "", "set firewall.enabled, or leave it out")
	}

	if !checks.OneOf(&r.Problems, path+".mode", lb.Mode, spec.LoadBalancerL2, spec.LoadBalancerBGP) {
		return
	}

	if bgp := lb.Mode == spec.LoadBalancerBGP; bgp != (lb.ASN > 0) || bgp != (len(lb.Peers) > 0) {
		r.Problems.Add(path, `needs asn and peers with mode "bgp", and only with it`, string(lb.Mode),
			"write it like asn: 64512, peers: [{ address: 10.0.0.1, asn: 64500 }]")
	}

	for i, peer := range lb.Peers {
		if !checks.IsAddress(peer.Address) {
			r.Problems.Add(checks.At(path+".peers", i)+".address", "must be an address", peer.Address, "write it like 10.0.0.1")
		}
	}
}

// CheckServiceAddresses checks that no address for Services is a node's, the router's or the endpoint's.
func (r *Resolver) CheckServiceAddresses(p *plan.Plan) {
	if p.LoadBalancer == nil {
		return
	}

	check := func(address netip.Addr, owner string) {
		for _, span := range p.LoadBalancer.Ranges {
			if address.IsValid() && span.Contains(address) {
				r.Problems.Add("cluster.cni.loadBalancer.addresses", "hold "+address.String()+", the address of "+owner,
					span.String(), "leave it out of the range")
			}
		}
	}

	check(p.Gateway, "the router")
	check(p.VIP, "the endpoint")

	for _, n := range p.Nodes() {
		check(n.Address, n.Name)
	}
}
