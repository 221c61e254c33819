package talosimage

import (
	"cmp"
	"fmt"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/impact"
	"talos-proxmox/components/plan"
)

// defaultFactory serves the installers of templates and ISO files whose extensions are set.
const defaultFactory = "https://factory.talos.dev"

// published is the installer of Talos itself.
const published = "ghcr.io/siderolabs/installer"

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

// secureBoot is what the Image Factory adds to the names of what is for SecureBoot.
const secureBoot = "-secureboot"

// signed is secureBoot for such an image, and otherwise empty.
func signed(image plan.BootImage) string {
	if image.SecureBoot {
		return secureBoot
	}

	return ""
}

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
