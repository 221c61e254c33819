package machineconfig

import (
	"fmt"
	"net/netip"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// need is what Talos lets a patch take away and this cluster cannot do without.
type need struct {
	rule   string
	broken func(talosconfig.Provider) bool
	// unpatched is the problem where no patch is at fault.
	unpatched spec.Problem
}

func needs(p *plan.Plan) []need {
	var all []need

	if p.CNI == spec.CNICilium || p.EndpointMode == spec.EndpointKubeVIP {
		all = append(all, need{
			rule: "KubePrism must stay on, at its own port: that is how Cilium and kube-vip reach the Kubernetes API",
			broken: func(cfg talosconfig.Provider) bool {
				k := cfg.K8sKubePrismConfig()

				return k == nil || k.Port() != constants.DefaultKubePrismPort
			},
		})
	}

	return slices.Concat(all, clusterNetworks(p), firewallNeeds(p))
}

// firewallNeeds are what a patch may add that the firewalls do not know of.
func firewallNeeds(p *plan.Plan) []need {
	first := slices.IndexFunc(p.Pools, func(pool plan.PlannedPool) bool {
		return pool.Role == spec.RoleControlPlane &&
			pool.Ingress != nil
	})
	if first < 0 {
		return nil
	}

	lets := func(protocol spec.Protocol, port uint16, from netip.Prefix) bool {
		return slices.ContainsFunc(p.Pools[first].Ingress, func(in plan.Ingress) bool {
			return in.Protocol == protocol &&
				slices.ContainsFunc(in.Ports, func(span plan.Ports) bool { return span.First <= port && port <= span.Last }) &&
				slices.ContainsFunc(in.From, func(net netip.Prefix) bool {
					return net.Bits() <= from.Bits() &&
						net.Contains(from.Addr())
				})
		})
	}

	return []need{
		{
			rule: fmt.Sprintf("KubeSpan needs UDP port %d between nodes, which the firewalls do not let in unless "+
				"firewall.open does", constants.KubeSpanDefaultPort),
			broken: func(cfg talosconfig.Provider) bool {
				return kubeSpan(cfg) &&
					!lets(spec.ProtocolUDP, constants.KubeSpanDefaultPort, p.Network)
			},
		},
		{
			rule: fmt.Sprintf("pods of another network than %s cannot reach ports %d and %d, unless firewall.open lets them in",
				constants.DefaultIPv4PodCIDR,
				constants.DefaultControlPlanePort, constants.KubeletPort),
			broken: func(cfg talosconfig.Provider) bool {
				pods, _ := clusterNetworksOf(cfg)

				return slices.ContainsFunc(pods, func(pods netip.Prefix) bool {
					return !lets(spec.ProtocolTCP, constants.DefaultControlPlanePort, pods) ||
						!lets(spec.ProtocolTCP, constants.KubeletPort, pods)
				})
			},
		},
	}
}

func kubeSpan(cfg talosconfig.Provider) bool {
	k := cfg.NetworkKubeSpanConfig()

	return k != nil && k.Enabled()
}
