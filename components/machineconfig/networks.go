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

// proxyDoubts are networks of pods and services that the proxy of the nodes is asked for: the program excepts Talos'
// own.
func proxyDoubts(p *plan.Plan, cfg talosconfig.Provider) []string {
	if p.Proxy == nil {
		return nil
	}

	var doubts []string

	pods, services := clusterNetworksOf(cfg)
	for _, network := range slices.Concat(pods, services) {
		if !slices.ContainsFunc(p.NoProxy, func(text string) bool {
			except, err := netip.ParsePrefix(text)

			return err == nil && spec.Holds(except, network)
		}) {
			doubts = append(doubts, "nodes would send requests to pods or Services in "+network.String()+" to the proxy: "+
				"cluster.proxy.except does not hold that network")
		}
	}

	return doubts
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
