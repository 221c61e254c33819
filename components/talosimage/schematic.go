package talosimage

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/siderolabs/image-factory/pkg/schematic"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/meta"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
)

// defaultFactory serves the installers of templates and ISO files whose extensions are stated.
const defaultFactory = "https://factory.talos.dev"

// Schematic is what the Image Factory is asked for: the extensions and kernel arguments of an image and, where an image
// is made for each node, the node's network. The id is the one that the factory will give it.
func Schematic(p *plan.Plan, image plan.BootImage, node plan.Node) (text, id string, err error) {
	var s schematic.Schematic

	for _, name := range image.Extensions {
		if !strings.Contains(name, "/") {
			name = "siderolabs/" + name
		}

		s.Customization.SystemExtensions.OfficialExtensions = append(s.Customization.SystemExtensions.OfficialExtensions,
			name)
	}

	s.Customization.ExtraKernelArgs = image.KernelArgs

	if image.Scope == plan.PerNode {
		value, err := NetworkMeta(p, node)
		if err != nil {
			return "", "", fmt.Errorf("META of %s: %w", node.Name, err)
		}

		s.Customization.Meta = []schematic.MetaValue{{Key: meta.MetalNetworkPlatformConfig, Value: value}}
	}

	data, err := s.Marshal()
	if err != nil {
		return "", "", err
	}

	id, err = s.ID()

	return string(data), id, err
}

// SchematicID is the schematic that a node is installed from; empty: the image carries nothing.
func SchematicID(p *plan.Plan, image plan.BootImage, node plan.Node) (string, error) {
	if image.SchematicID != "" || image.FactoryURL == "" && len(image.Extensions) == 0 {
		return image.SchematicID, nil
	}

	_, id, err := Schematic(p, image, node)

	return id, err
}

// Installer is the image that Talos is installed and upgraded from: of the same schematic as the image that the node
// boots first, so that extensions survive the installation. What boots with SecureBoot starts no unsigned system. Talos
// itself publishes no signed installer.
func Installer(p *plan.Plan, image plan.BootImage, node plan.Node) (string, error) {
	id, err := SchematicID(p, image, node)
	if err != nil {
		return "", err
	}

	if id == "" {
		if publishesInstaller(p.Talos) && !image.SecureBoot {
			return published + ":" + p.Talos, nil
		}

		id = impact.Vanilla
	}

	return fmt.Sprintf("%s/%s-installer%s/%s:%s", registryOf(cmp.Or(image.FactoryURL, defaultFactory)), p.Platform,
		signed(image), id, p.Talos), nil
}

// signed is what the Image Factory adds to the names of what is for SecureBoot.
func signed(image plan.BootImage) string {
	if image.SecureBoot {
		return secureBoot
	}

	return ""
}

const secureBoot = "-secureboot"

func registryOf(factory string) string {
	_, registry, _ := strings.Cut(factory, "://")

	return registry
}

// publishesInstaller says whether a version of Talos has an installer of its own, for machines without SecureBoot. From
// 1.14 on, the Image Factory makes all of them.
func publishesInstaller(talos string) bool {
	contract, err := talosconfig.ParseContractFromVersion(talos)

	return err != nil || !contract.Greater(talosconfig.TalosVersion1_13)
}
