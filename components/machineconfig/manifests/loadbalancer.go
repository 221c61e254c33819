package manifests

import (
	"fmt"

	"github.com/blang/semver/v4"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// metalLB is installed where Flannel is.
const metalLB = "0.15.2"

const addressesName = "services"

// loadBalancer are the addresses for Services, and how the network learns of them: in Cilium's own kinds, or with
// MetalLB and in its.
func loadBalancer(p *plan.Plan) addon {
	if p.CNI == spec.CNICilium {
		return addon{version: p.CNIVersion, objects: ciliumAddresses(p)}
	}

	return addon{
		version: metalLB, urls: []string{rawGitHub + "metallb/metallb/v" + metalLB + "/config/manifests/metallb-native.yaml"},
		objects: metalLBAddresses(p.LoadBalancer),
	}
}

func custom(version, kind, namespace string, body map[string]any) map[string]any {
	meta := map[string]any{"name": addressesName}
	if namespace != "" {
		meta["namespace"] = namespace
	}

	return map[string]any{"apiVersion": version, "kind": kind, "metadata": meta, "spec": body}
}

func peerName(i int) string { return fmt.Sprintf("peer-%d", i+1) }

// stableKinds is the first minor version of Cilium that has the kinds of its addresses and of BGP in a stable version.
const stableKinds = 18

func ciliumAddresses(p *plan.Plan) []map[string]any {
	lb := p.LoadBalancer

	version := "cilium.io/v2alpha1"
	if v, err := semver.ParseTolerant(p.CNIVersion); err == nil && (v.Major > 1 || v.Minor >= stableKinds) {
		version = "cilium.io/v2"
	}

	var blocks, peers []any

	for _, span := range lb.Ranges {
		blocks = append(blocks, map[string]any{"start": span.From().String(), "stop": span.To().String()})
	}

	all := []map[string]any{
		custom(version, "CiliumLoadBalancerIPPool", "", map[string]any{"blocks": blocks}),
	}

	if lb.Mode == spec.LoadBalancerL2 {
		// This one has no other version yet.
		return append(all, custom("cilium.io/v2alpha1", "CiliumL2AnnouncementPolicy", "",
			map[string]any{"loadBalancerIPs": true}))
	}

	for i, peer := range lb.Peers {
		peers = append(peers, map[string]any{
			"name": peerName(i), "peerASN": peer.ASN, "peerAddress": peer.Address,
			"peerConfigRef": map[string]any{"name": addressesName},
		})
	}

	labels := map[string]any{"advertise": addressesName}
	advertisement := custom(version, "CiliumBGPAdvertisement", "", map[string]any{"advertisements": []any{map[string]any{
		"advertisementType": "Service", "service": map[string]any{"addresses": []any{"LoadBalancerIP"}},
		// All Services: a selector is required.
		"selector": map[string]any{"matchExpressions": []any{map[string]any{
			"key": "advertise", "operator": "NotIn", "values": []any{"never"},
		}}},
	}}})
	advertisement["metadata"].(map[string]any)["labels"] = labels

	var families []any
	for _, afi := range []string{"ipv4", "ipv6"} {
		families = append(families, map[string]any{
			"afi": afi, "safi": "unicast", "advertisements": map[string]any{"matchLabels": labels},
		})
	}

	return append(all,
		custom(version, "CiliumBGPClusterConfig", "", map[string]any{"bgpInstances": []any{map[string]any{
			"name": addressesName, "localASN": lb.ASN, "peers": peers,
		}}}),
		custom(version, "CiliumBGPPeerConfig", "", map[string]any{"families": families}),
		advertisement,
	)
}

func metalLBAddresses(lb *plan.PlannedLoadBalancer) []map[string]any {
	const namespace, v1, v2 = "metallb-system", "metallb.io/v1beta1", "metallb.io/v1beta2"

	var ranges []any

	for _, span := range lb.Ranges {
		ranges = append(ranges, span.From().String()+"-"+span.To().String())
	}

	pools := map[string]any{"ipAddressPools": []any{addressesName}}
	all := []map[string]any{custom(v1, "IPAddressPool", namespace, map[string]any{"addresses": ranges})}

	if lb.Mode == spec.LoadBalancerL2 {
		return append(all, custom(v1, "L2Advertisement", namespace, pools))
	}

	for i, peer := range lb.Peers {
		object := custom(v2, "BGPPeer", namespace, map[string]any{
			"myASN": lb.ASN, "peerASN": peer.ASN, "peerAddress": peer.Address,
		})
		object["metadata"].(map[string]any)["name"] = peerName(i)
		all = append(all, object)
	}

	return append(all, custom(v1, "BGPAdvertisement", namespace, pools))
}
