package machineconfig

import (
	"fmt"
	"net/netip"
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/machineconfig/patches"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// requirements are those of every node.
func requirements(p *plan.Plan) []requirement {
	var all []requirement

	if p.CNI == spec.CNICilium || p.EndpointMode == spec.EndpointKubeVIP {
		all = append(all, requirement{
			rule: "KubePrism must stay on, at its own port: that is how Cilium and kube-vip reach the Kubernetes API",
			broken: func(cfg talosconfig.Provider) bool {
				k := cfg.K8sKubePrismConfig()

				return k == nil || k.Port() != constants.DefaultKubePrismPort
			},
		})
	}

	all = append(all, requirement{
		rule: "the kubelet does not register a node with a duplicate taint: the taints of the pool are in " +
			patches.RegisterWithTaints + " already",
		broken: func(cfg talosconfig.Provider) bool {
			all, _ := cfg.K8sKubeletConfig().ExtraConfig()[patches.RegisterWithTaints].([]any)

			return slices.ContainsFunc(all, func(taint any) bool {
				return len(slices.DeleteFunc(slices.Clone(all), func(other any) bool { return !sameTaint(taint, other) })) > 1
			})
		},
	})

	return slices.Concat(all, lostLabels(), clusterNetworks(p), networkArgs(), firewallRequirements(p))
}

// sameTaint compares two taints of the kubelet's configuration as Kubernetes does.
func sameTaint(a, b any) bool {
	one, _ := a.(map[string]any)
	two, _ := b.(map[string]any)

	return one["key"] == two["key"] && one["effect"] == two["effect"]
}

// lostLabels are labels and taints that a patch may give a node and that do not come there.
func lostLabels() []requirement {
	const and = ", and with it all other labels that Talos sets there; use "

	return []requirement{
		{
			rule: "Kubernetes refuses machine.nodeTaints of a worker" + and + "taints of the pool",
			broken: func(cfg talosconfig.Provider) bool {
				return !cfg.Machine().Type().IsControlPlane() && len(cfg.K8sNodeConfig().Taints()) > 0
			},
		},
		{
			rule: "Kubernetes refuses a restricted label in machine.nodeLabels of a worker" + and + "labels of the pool",
			broken: func(cfg talosconfig.Provider) bool {
				n := plan.Node{Labels: cfg.K8sNodeConfig().Labels()}

				return !cfg.Machine().Type().IsControlPlane() && len(n.RestrictedLabels()) > 0
			},
		},
		{
			rule: "a kubelet does not start with a restricted label in its node-labels; use labels of the pool",
			broken: func(cfg talosconfig.Provider) bool {
				return slices.ContainsFunc(cfg.K8sKubeletConfig().ExtraArgs()["node-labels"], func(list string) bool {
					return len(plan.RestrictedIn(list)) > 0
				})
			},
		},
	}
}

// firewallRequirements are what a patch may add that the firewalls do not know of.
func firewallRequirements(p *plan.Plan) []requirement {
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
				slices.ContainsFunc(in.From, func(net netip.Prefix) bool { return spec.Holds(net, from) })
		})
	}

	return []requirement{
		{
			rule: fmt.Sprintf("KubeSpan needs UDP port %d between nodes, which the firewalls block unless "+
				"firewall.open allows it", constants.KubeSpanDefaultPort),
			broken: func(cfg talosconfig.Provider) bool {
				return kubeSpan(cfg) &&
					!lets(spec.ProtocolUDP, constants.KubeSpanDefaultPort, p.Network)
			},
		},
		{
			rule: fmt.Sprintf("pods of another network than %s cannot reach ports %d and %d, unless firewall.open "+
				"allows them",
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

// clusterNetworks are what is required of the networks of pods and services, which only patches change.
func clusterNetworks(p *plan.Plan) []requirement {
	return []requirement{
		{
			rule: "the networks of pods and services must not be the whole of the Internet",
			broken: func(cfg talosconfig.Provider) bool {
				n := cfg.K8sNetworkConfig()

				return n != nil && slices.ContainsFunc(slices.Concat(n.PodCIDRs(), n.ServiceCIDRs()), everything)
			},
		},
		{
			rule: "the first networks of pods and services must be of the IP version of network.cidr " + p.Network.String() +
				": the Kubernetes API server does not start with others",
			unpatched: spec.Problem{
				Path: "network.cidr", Rule: "must be of the IP version of the networks of pods and services, " +
					constants.DefaultIPv4PodCIDR + " and " + constants.DefaultIPv4ServiceCIDR +
					": the Kubernetes API server does not start otherwise", Value: p.Network.String(),
				Remedy: "set networks for both in cluster.patches, for example " +
					"cluster: {network: {podSubnets: [fd00:10:244::/56], serviceSubnets: [fd00:10:96::/112]}}",
			},
			broken: func(cfg talosconfig.Provider) bool {
				pods, services := clusterNetworksOf(cfg)
				other := func(all []netip.Prefix) bool {
					return len(all) > 0 && p.Network.IsValid() && all[0].Addr().Is6() != p.Network.Addr().Is6()
				}

				return other(pods) || other(services)
			},
		},
		{
			rule: "the networks of pods and services must not hold that of the nodes, network.cidr " + p.Network.String(),
			unpatched: spec.Problem{
				Path: "network.cidr", Rule: "must not lie in the networks of pods and services, " +
					constants.DefaultIPv4PodCIDR + " and " + constants.DefaultIPv4ServiceCIDR, Value: p.Network.String(),
				Remedy: "choose another one for the nodes, or set others for pods and services in a patch " +
					"(cluster.network.podSubnets, serviceSubnets)",
			},
			broken: func(cfg talosconfig.Provider) bool {
				pods, services := clusterNetworksOf(cfg)

				// One that holds these and much else does no harm by itself.
				return slices.ContainsFunc(slices.Concat(pods, services), func(own netip.Prefix) bool {
					return spec.Holds(own, p.Network)
				})
			},
		},
		{
			rule: "the networks of pods and services must not overlap",
			broken: func(cfg talosconfig.Provider) bool {
				pods, services := clusterNetworksOf(cfg)

				return slices.ContainsFunc(services, func(services netip.Prefix) bool {
					return slices.ContainsFunc(pods, services.Overlaps)
				})
			},
		},
	}
}
