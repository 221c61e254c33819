package planner

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/checks"
)

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
	if pool.Contains(r.network.Addr()) && r.network.Bits() >= pool.Bits() {
		r.Problems.Add(path, "must not hold that of the nodes, network.cidr "+r.network.String(), pool.String(), remedy)

		return
	}

	all := p.FixedAddresses()

	for _, of := range p.Pools {
		for _, n := range of.Nodes {
			if a, ok := of.FixedAddress(n); ok {
				all = append(all, a)
			}
		}
	}

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
