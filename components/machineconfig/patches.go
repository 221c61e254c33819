// Package machineconfig renders what a plan means for Talos: configuration patches made from Talos' own types, and their
// check by Talos' own validator. It is pure; machine secrets never reach it.
package machineconfig

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"gopkg.in/yaml.v3"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/plan"
)

// Patches returns the configuration patches of a pool, in the order they are applied: the program's own, the operator's
// for every node, the operator's for the pool.
func Patches(p *plan.Plan, pool plan.PlannedPool) ([]string, error) {
	var texts []string

	patches, err := poolPatches(p, pool)
	if err != nil {
		return nil, err
	}

	for _, patch := range patches {
		texts = append(texts, patch.Text)
	}

	return texts, nil
}

func poolPatches(p *plan.Plan, pool plan.PlannedPool) ([]plan.Patch, error) {
	own, err := render(base(p, pool))
	if err != nil {
		return nil, fmt.Errorf("rendering the configuration of pool %s: %w", pool.Name, err)
	}

	patches := []plan.Patch{{Origin: "the program's own patch", Text: own}}
	patches = append(patches, p.Patches...)

	return append(patches, pool.Patches...), nil
}

// NodePatches returns what is particular to one node; it is applied after the patches of its pool.
func NodePatches(p *plan.Plan, node plan.Node) ([]string, error) {
	contract, err := talosconfig.ParseContractFromVersion(p.Talos)
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", p.Talos, err)
	}

	text, err := render(hostname(contract, node.Name))
	if err != nil {
		return nil, fmt.Errorf("rendering the configuration of %s: %w", node.Name, err)
	}

	return []string{text}, nil
}

// base is what all nodes of a pool share.
func base(p *plan.Plan, pool plan.PlannedPool) *v1alpha1.Config {
	machine := &v1alpha1.MachineConfig{
		MachineInstall: &v1alpha1.InstallConfig{InstallImage: p.Installer},
		MachineKubelet: &v1alpha1.KubeletConfig{
			// Without it the kubelet may choose a virtual IP or an address of the cluster's own network.
			KubeletNodeIP: &v1alpha1.KubeletNodeIPConfig{KubeletNodeIPValidSubnets: []string{p.Network.String()}},
		},
	}

	if len(pool.Nodes) > 0 {
		machine.MachineInstall.InstallDisk = installDisk(pool.Nodes[0].DiskInterface)
	}

	return &v1alpha1.Config{ConfigVersion: "v1alpha1", MachineConfig: machine}
}

// installDisk is how Linux names the only disk at a Proxmox disk position.
func installDisk(iface string) string {
	if strings.HasPrefix(iface, "virtio") {
		return "/dev/vda"
	}

	return "/dev/sda"
}

// hostname is a document of its own since Talos 1.12, which refuses the old field beside the document it generates.
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

// render writes a document as a strategic merge patch. Talos' encoder writes some empty fields; a patch should say only
// what it means, so they are dropped.
func render(doc config.Document) (string, error) {
	c, err := container.New(doc)
	if err != nil {
		return "", err
	}

	text, err := c.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return "", err
	}

	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return "", err
	}

	prune(&node)

	var b strings.Builder

	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(&node); err != nil {
		return "", err
	}

	return b.String(), enc.Close()
}

// prune removes empty values from a YAML tree and reports whether the node itself is empty.
func prune(n *yaml.Node) bool {
	switch n.Kind {
	case yaml.DocumentNode:
		return prune(n.Content[0])
	case yaml.MappingNode:
		var kept []*yaml.Node

		for i := 0; i < len(n.Content); i += 2 {
			if !prune(n.Content[i+1]) {
				kept = append(kept, n.Content[i], n.Content[i+1])
			}
		}

		n.Content = kept

		return len(kept) == 0
	case yaml.SequenceNode:
		return len(n.Content) == 0
	default:
		return n.Tag == "!!null" || n.Value == ""
	}
}
