// Package patches renders a plan as configuration patches of Talos, made from Talos' own types: what the nodes of a
// pool share, and what each has of its own. No patch holds a secret.
package patches

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"talos-proxmox/components/machineconfig/encode"
	"talos-proxmox/components/machineconfig/manifests"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/talosimage"
)

// Own is the name of a patch that the program adds itself.
const Own = "the program's own patch"

// OfPool are the patches of a pool, in the order they are applied: the program's own, the operator's for every node,
// the operator's for the pool.
func OfPool(p *plan.Plan, pool plan.PlannedPool) ([]spec.Patch, error) {
	contract, err := talosconfig.ParseContractFromVersion(p.ContractVersion())
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", p.ContractVersion(), err)
	}

	shared, err := base(contract, p, pool)
	if err != nil {
		return nil, err
	}

	around, err := services(contract, p, shared.MachineConfig)
	if err != nil {
		return nil, err
	}

	encrypted := diskEncryption(contract, p, shared.MachineConfig)

	patches, err := own(pool.Name, slices.Concat([]config.Document{shared}, around, encrypted, firewall(pool)))
	if err != nil {
		return nil, fmt.Errorf("rendering the configuration of pool %s: %w", pool.Name, err)
	}

	// Without workers, control planes are all that could announce addresses of Services. Older contracts have no label,
	// and what is not there cannot be taken off.
	if p.LoadBalancer != nil && p.SchedulableControls && pool.Role == spec.RoleControlPlane &&
		contract.AddExcludeFromExternalLoadBalancer() {
		patches = append(patches, spec.Patch{Path: "pools." + pool.Name, Origin: Own, Text: announced})
	}

	return slices.Concat(patches, p.Patches, pool.Patches), nil
}

// OfNode are the patches of one node alone, in the order they are applied after those of its pool: the program's own,
// the operator's for the node.
func OfNode(p *plan.Plan, node plan.Node) ([]spec.Patch, error) {
	contract, err := talosconfig.ParseContractFromVersion(p.ContractVersion())
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", p.ContractVersion(), err)
	}

	docs := []config.Document{hostname(contract, node.Name)}

	vip, err := virtualIP(contract, p, node)
	if err != nil {
		return nil, err
	}

	kept, err := volumes(contract, p, node)
	if err != nil {
		return nil, err
	}

	docs = slices.Concat(docs, vip, kept)

	mine, err := machine(p, node)
	if err != nil {
		return nil, err
	}

	if mine != nil {
		docs = append(docs, &v1alpha1.Config{ConfigVersion: "v1alpha1", MachineConfig: mine})
	}

	patches, err := own(node.Pool, docs)
	if err != nil {
		return nil, fmt.Errorf("rendering the configuration of %s: %w", node.Name, err)
	}

	return append(patches, node.Patches...), nil
}

// own are documents of the program's, each a patch.
func own(pool string, docs []config.Document) ([]spec.Patch, error) {
	var patches []spec.Patch

	for _, doc := range docs {
		text, err := encode.Document(doc)
		if err != nil {
			return nil, err
		}

		patches = append(patches, spec.Patch{Path: "pools." + pool, Origin: Own, Text: text})
	}

	return patches, nil
}

// base is what all nodes of a pool share.
func base(contract *talosconfig.VersionContract, p *plan.Plan, pool plan.PlannedPool) (*v1alpha1.Config, error) {
	c := &v1alpha1.Config{ConfigVersion: "v1alpha1", MachineConfig: &v1alpha1.MachineConfig{
		MachineInstall: &v1alpha1.InstallConfig{},
		MachineKubelet: &v1alpha1.KubeletConfig{
			// Without it the kubelet may choose a virtual IP or an address of another network.
			KubeletNodeIP: &v1alpha1.KubeletNodeIPConfig{KubeletNodeIPValidSubnets: nodeSubnets(p)},
		},
	}}

	// Of an empty pool, the configuration is for machines of others, whose first disk it is mostly.
	c.MachineConfig.MachineInstall.InstallDisk = "/dev/sda"
	if len(pool.Nodes) > 0 {
		c.MachineConfig.MachineInstall.InstallDisk = installDisk(pool.Nodes[0])
	}

	if pool.Image.Scope != plan.PerNode {
		image, err := talosimage.Installer(p, pool.Image, plan.Node{})
		if err != nil {
			return nil, err
		}

		c.MachineConfig.MachineInstall.InstallImage = image
	}

	addGPU(c.MachineConfig, pool)

	c.ClusterConfig = &v1alpha1.ClusterConfig{ClusterDiscoveryConfig: discovery(p)}

	if pool.Role == spec.RoleControlPlane {
		reachable(contract, p, c)

		if err := addManifests(p, c.ClusterConfig); err != nil {
			return nil, err
		}
	}

	if err := addPlatform(p, pool, c); err != nil {
		return nil, err
	}

	if p.CNI != spec.CNIFlannel {
		// Cilium is not one that Talos knows: for Talos it is none, and comes as a manifest.
		c.ClusterConfig.ClusterNetwork = &v1alpha1.ClusterNetworkConfig{CNI: &v1alpha1.CNIConfig{CNIName: constants.NoneCNI}}
	}

	if !p.KubeProxy {
		c.ClusterConfig.ProxyConfig = &v1alpha1.ProxyConfig{Disabled: new(true)}
	}

	return c, nil
}

// addManifests has Talos apply the program's manifests, and after them the operator's.
func addManifests(p *plan.Plan, c *v1alpha1.ClusterConfig) error {
	all, err := manifests.Inline(p)
	if err != nil {
		return err
	}

	c.ExtraManifests = manifests.URLs(p)

	for _, m := range p.Manifests {
		if m.URL() {
			c.ExtraManifests = append(c.ExtraManifests, m.Text)
		} else {
			all = append(all, manifests.Manifest{Name: m.Origin, Contents: m.Text})
		}
	}

	for _, m := range all {
		c.ClusterInlineManifests = append(c.ClusterInlineManifests,
			v1alpha1.ClusterInlineManifest{InlineManifestName: m.Name, InlineManifestContents: m.Contents})
	}

	return nil
}

// machine is what of a node's machine configuration is its own; nil when nothing is.
func machine(p *plan.Plan, node plan.Node) (*v1alpha1.MachineConfig, error) {
	pool := p.PoolOf(node)
	install := &v1alpha1.InstallConfig{}

	if disk := installDisk(node); disk != installDisk(pool.Nodes[0]) {
		install.InstallDisk = disk
	}

	if pool.Image.Scope == plan.PerNode {
		image, err := talosimage.Installer(p, pool.Image, node)
		if err != nil {
			return nil, err
		}

		install.InstallImage = image
	}

	m := &v1alpha1.MachineConfig{MachineNodeLabels: node.Labels, MachineNodeAnnotations: node.Annotations}

	if node.Role == spec.RoleControlPlane {
		m.MachineNodeTaints = node.Taints
	} else if err := limitToKubelet(m, node); err != nil {
		return nil, err
	}

	if id := p.ProviderID(node); id != "" {
		if m.MachineKubelet == nil {
			m.MachineKubelet = &v1alpha1.KubeletConfig{}
		}

		// It counts when the node registers.
		m.MachineKubelet.KubeletExtraArgs = meta.Args{"provider-id": meta.NewArgValue(id, nil)}
	}

	if install.InstallDisk+install.InstallImage != "" {
		m.MachineInstall = install
	}

	if node.Static {
		m.MachineNetwork = staticNetwork(p, node)
	}

	if m.MachineInstall == nil && m.MachineNetwork == nil && m.MachineKubelet == nil &&
		len(m.MachineNodeLabels)+len(m.MachineNodeTaints)+len(m.MachineNodeAnnotations) == 0 {
		return nil, nil //nolint:nilnil // nothing is an answer
	}

	return m, nil
}

// limitToKubelet leaves a worker what it can do with the credentials of its kubelet: Talos sets labels and taints in
// one request there, which the API server refuses as a whole for one restricted label or any taint. Taints come with
// the registration of the node; the rest is the program's.
func limitToKubelet(m *v1alpha1.MachineConfig, node plan.Node) error {
	m.MachineNodeLabels = node.OwnLabels()

	taints := node.TaintList()
	if len(taints) == 0 {
		return nil
	}

	text, err := json.Marshal(map[string]any{RegisterWithTaints: taints})
	if err != nil {
		return err
	}

	m.MachineKubelet = &v1alpha1.KubeletConfig{}

	return json.Unmarshal(text, &m.MachineKubelet.KubeletExtraConfig.Object)
}

// RegisterWithTaints is the setting of the kubelet's configuration for the taints of a node that is not registered yet.
const RegisterWithTaints = "registerWithTaints"

// staticNetwork is the address that a node had by reservation so far. The link is told by its MAC address, for what it
// is called depends on the image.
func staticNetwork(p *plan.Plan, node plan.Node) *v1alpha1.NetworkConfig {
	link := &v1alpha1.Device{
		DeviceSelector:  &v1alpha1.NetworkDeviceSelector{NetworkDeviceHardwareAddress: strings.ToLower(node.MAC)},
		DeviceAddresses: []string{netip.PrefixFrom(node.Address, p.Network.Bits()).String()},
		DeviceRoutes:    []*v1alpha1.Route{{RouteGateway: p.Gateway.String()}},
	}

	n := &v1alpha1.NetworkConfig{NetworkInterfaces: v1alpha1.NetworkDeviceList{link}}
	for _, server := range p.Nameservers {
		n.NameServers = append(n.NameServers, server.String())
	}

	return n
}

// installDisk is how Linux names the system disk: letters go in the order of the positions on a bus.
func installDisk(node plan.Node) string {
	bus, position := node.Disks[0].Position()
	letter := 'a'

	for _, d := range node.Disks[1:] {
		if other, before := d.Position(); other == bus && before < position {
			letter++
		}
	}

	if bus == "virtio" {
		return "/dev/vd" + string(letter)
	}

	return "/dev/sd" + string(letter)
}

// hostname is a document of its own since Talos 1.12, which refuses the old field together with the document it
// generates.
func hostname(contract *talosconfig.VersionContract, name string) config.Document {
	if contract.MultidocNetworkConfigSupported() {
		doc := network.NewHostnameConfigV1Alpha1()
		doc.ConfigHostname = name
		// The generated document says "stable"; a static name is accepted only without it.
		doc.ConfigAuto = new(nethelpers.AutoHostnameKindOff)

		return doc
	}

	return &v1alpha1.Config{
		ConfigVersion: "v1alpha1",
		MachineConfig: &v1alpha1.MachineConfig{MachineNetwork: &v1alpha1.NetworkConfig{NetworkHostname: name}},
	}
}
