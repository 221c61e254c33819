package machineconfig

import (
	"net/netip"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// ClusterNetworks names the networks of pods and services of a configuration, to compare and to show them.
func ClusterNetworks(cfg talosconfig.Provider) string {
	pods, services := clusterNetworksOf(cfg)

	var names []string
	for _, network := range slices.Concat(pods, services) {
		names = append(names, network.String())
	}

	return strings.Join(names, ", ")
}

// everything says that a network holds all addresses of its IP version, which a requirement refuses.
func everything(p netip.Prefix) bool { return p.IsValid() && p.Bits() == 0 }

// clusterNetworksOf are the networks of pods and services; Talos refuses other texts by itself.
func clusterNetworksOf(cfg talosconfig.Provider) (pods, services []netip.Prefix) {
	n := cfg.K8sNetworkConfig()
	if n == nil {
		n = &v1alpha1.ClusterConfig{} // the defaults
	}

	valid := func(all []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { return !p.IsValid() || everything(p) })
	}

	return valid(n.PodCIDRs()), valid(n.ServiceCIDRs())
}

// networkArgs are arguments that give pods and services other networks than those of the configuration, which the CNI,
// the firewalls and the checks go by. kube-proxy only tells pods from others by its argument.
func networkArgs() []requirement {
	same := func(given, pods []netip.Prefix) bool { return slices.Equal(given, pods) }
	holds := func(given, pods []netip.Prefix) bool {
		return !slices.ContainsFunc(pods, func(pods netip.Prefix) bool {
			return !slices.ContainsFunc(given, func(given netip.Prefix) bool {
				return given.IsValid() && given.Bits() <= pods.Bits() && given.Contains(pods.Addr())
			})
		})
	}

	var all []requirement

	for _, argument := range []struct {
		component, key, name, rule, subnets string
		right                               func(given, configured []netip.Prefix) bool
	}{
		{
			"kube-controller-manager", "cluster.controllerManager.extraArgs.", "cluster-cidr",
			"must be the same as ", podSubnets, same,
		},
		{kubeAPIServer, "cluster.apiServer.extraArgs.", "service-cluster-ip-range", "must be the same as ", serviceSubnets, same},
		{"kube-proxy", "cluster.proxy.extraArgs.", "cluster-cidr", "must hold ", podSubnets, holds},
	} {
		all = append(all, requirement{
			rule: argument.key + argument.name + " " + argument.rule + argument.subnets + ", which the CNI, the firewalls " +
				"and the checks go by: set only " + argument.subnets + ", in cluster.patches",
			broken: func(cfg talosconfig.Provider) bool {
				configured, services := clusterNetworksOf(cfg)
				if argument.subnets == serviceSubnets {
					configured = services
				}

				return slices.ContainsFunc(components(cfg), func(c component) bool {
					given, there := c.args[argument.name]

					return there && c.name == argument.component && !argument.right(networks(given), configured)
				})
			},
		})
	}

	return all
}

const (
	podSubnets     = "cluster.network.podSubnets"
	serviceSubnets = "cluster.network.serviceSubnets"
)

// networks are those that the values of an argument name, an invalid one for each that cannot be read.
func networks(values []string) []netip.Prefix {
	var all []netip.Prefix

	for text := range strings.SplitSeq(strings.Join(values, ","), ",") {
		network, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			network = netip.Prefix{}
		}

		all = append(all, network.Masked())
	}

	return all
}

// checkAddresses: Talos takes no address of the networks of pods and services for that of a node, and these hide what
// else has one. Both configurations are of the same node: without patches, and with all.
func (c *checker) checkAddresses(
	p *plan.Plan, pool plan.PlannedPool, node plan.Node, base, patched talosconfig.Provider,
	patches []spec.Patch,
) {
	all := p.FixedAddresses()
	if a, ok := pool.FixedAddress(node); ok {
		all = append(all, a)
	}

	for _, a := range all {
		in := func(own netip.Prefix) bool { return a.In(own, p.Network) }
		hidden := func(cfg talosconfig.Provider) bool {
			pods, services := clusterNetworksOf(cfg)

			return slices.ContainsFunc(pods, in) || a.Node && slices.ContainsFunc(services, in)
		}

		switch {
		case !hidden(patched):
		case hidden(base):
			c.note(&c.problems, spec.Problem{
				Path: a.Path, Rule: "must not lie in the networks of pods and services, " + constants.DefaultIPv4PodCIDR +
					" and " + constants.DefaultIPv4ServiceCIDR, Value: a.Value,
				Remedy: "choose another address, or set others for pods and services in a patch " +
					"(cluster.network.podSubnets, serviceSubnets)",
			})
		default:
			c.note(&c.problems, blame(base, patches, node, "the networks of pods and services must not hold an address of "+
				a.Path, hidden))
		}
	}
}
