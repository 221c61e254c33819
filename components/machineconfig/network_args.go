package machineconfig

import (
	"net/netip"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/spec"
)

// networkArgs are arguments that give pods and services other networks than those of the configuration, which the CNI,
// the firewalls and the checks go by. kube-proxy only tells pods from others by its argument.
func networkArgs() []requirement {
	same := func(given, pods []netip.Prefix) bool { return slices.Equal(given, pods) }
	holds := func(given, pods []netip.Prefix) bool {
		return !slices.ContainsFunc(pods, func(pods netip.Prefix) bool {
			return !slices.ContainsFunc(given, func(given netip.Prefix) bool {
				return spec.Holds(given, pods)
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
		{
			kubeAPIServer, "cluster.apiServer.extraArgs.", "service-cluster-ip-range",
			"must be the same as ", serviceSubnets, same,
		},
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
