package talosimage

import (
	"fmt"
	"strings"

	"github.com/siderolabs/image-factory/pkg/schematic"
	"github.com/siderolabs/talos/pkg/machinery/meta"

	"talos-proxmox/components/plan"
)

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
