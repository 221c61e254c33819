package patches

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// LinkAlias is what Talos is told to call the link with the node's address, whose own name depends on the machine type
// and the kernel arguments.
const LinkAlias = "lan"

// virtualIP has a control plane compete for the shared address. It is a document of its own since Talos 1.12.
func virtualIP(contract *talosconfig.VersionContract, p *plan.Plan, node plan.Node) ([]config.Document, error) {
	if p.EndpointMode != spec.EndpointVIP || node.Role != spec.RoleControlPlane {
		return nil, nil
	}

	mac := strings.ToLower(node.MAC) // Talos compares texts

	if contract.MultidocNetworkConfigSupported() {
		match, err := cel.ParseBooleanExpression(fmt.Sprintf("mac(link.permanent_addr) == %q", mac), celenv.LinkLocator())
		if err != nil {
			return nil, fmt.Errorf("selecting the link of %s: %w", node.Name, err)
		}

		alias := network.NewLinkAliasConfigV1Alpha1(LinkAlias)
		alias.Selector.Match = match

		vip := network.NewLayer2VIPConfigV1Alpha1(p.VIP.String())
		vip.LinkName = LinkAlias

		return []config.Document{alias, vip}, nil
	}

	device := &v1alpha1.Device{
		DeviceSelector:  &v1alpha1.NetworkDeviceSelector{NetworkDeviceHardwareAddress: mac},
		DeviceVIPConfig: &v1alpha1.DeviceVIPConfig{SharedIP: p.VIP.String()},
	}

	if p.Addressing != spec.AddressingStatic && !node.Static {
		// A link that the configuration names gets no address by DHCP unless it says so.
		device.DeviceDHCP = new(true)
	}

	return []config.Document{&v1alpha1.Config{ConfigVersion: "v1alpha1", MachineConfig: &v1alpha1.MachineConfig{
		MachineNetwork: &v1alpha1.NetworkConfig{NetworkInterfaces: v1alpha1.NetworkDeviceList{device}},
	}}}, nil
}

// nodeSubnets are where a node's own address is: its network without the shared address.
func nodeSubnets(p *plan.Plan) []string {
	subnets := []string{p.Network.String()}

	if p.VIP.IsValid() && p.Network.Contains(p.VIP) {
		subnets = append(subnets, "!"+netip.PrefixFrom(p.VIP, p.VIP.BitLen()).String())
	}

	return subnets
}

// reachable lets a control plane be reached by every name it may have, and has etcd take the same address as the
// kubelet.
func reachable(contract *talosconfig.VersionContract, p *plan.Plan, c *v1alpha1.Config) {
	names := certificateNames(p)
	c.MachineConfig.MachineCertSANs = names
	c.ClusterConfig.EtcdConfig = &v1alpha1.EtcdConfig{EtcdAdvertisedSubnets: nodeSubnets(p)}

	if contract.PopulateClusterSANsFromEndpoint() {
		// The endpoint is in the list that this one is appended to.
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == endpointHost(p) })
	}

	c.ClusterConfig.APIServerConfig = &v1alpha1.APIServerConfig{ExtraCertSANs: names}
}

// certificateNames are the endpoint and the addresses of the control planes, as far as they are known in advance.
func certificateNames(p *plan.Plan) []string {
	var names []string

	if host := endpointHost(p); host != "" {
		names = append(names, host)
	}

	for _, node := range p.ControlPlanes() {
		if name := node.Address.String(); node.Address.IsValid() && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	for _, name := range p.CertNames {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	return names
}

func endpointHost(p *plan.Plan) string {
	u, err := url.Parse(p.Endpoint)
	if err != nil {
		return ""
	}

	return u.Hostname()
}

// discovery says everything of the registries that is not so by itself.
func discovery(p *plan.Plan) *v1alpha1.ClusterDiscoveryConfig {
	switch p.Discovery {
	case spec.DiscoveryKubernetes:
		return &v1alpha1.ClusterDiscoveryConfig{DiscoveryRegistries: v1alpha1.DiscoveryRegistriesConfig{
			RegistryKubernetes: v1alpha1.RegistryKubernetesConfig{RegistryDisabled: new(false)},
			RegistryService:    v1alpha1.RegistryServiceConfig{RegistryDisabled: new(true)},
		}}
	case spec.DiscoveryNone:
		return &v1alpha1.ClusterDiscoveryConfig{DiscoveryEnabled: new(false)}
	case spec.DiscoveryService: // as generated
	}

	return nil
}
