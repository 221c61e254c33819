package rehearsal

import (
	"net/url"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/ubuntu"
)

// carried is what a template or an ISO file carries, as its operator had the factory make it.
func carried(image plan.BootImage) *lab.Schematic {
	s := &lab.Schematic{}

	for _, name := range image.Extensions {
		if !strings.Contains(name, "/") {
			name = "siderolabs/" + name
		}

		c := &s.Customization.SystemExtensions
		c.OfficialExtensions = append(c.OfficialExtensions, name)
	}

	s.Customization.ExtraKernelArgs = image.KernelArgs

	return s
}

// schematicOf is the id of what a template or an ISO file carries.
func schematicOf(image plan.BootImage) string {
	if image.SchematicID != "" {
		return image.SchematicID
	}

	return carried(image).ID()
}

// isoOf is the ISO file that the nodes of a pool boot.
func isoOf(p *plan.Plan, image plan.BootImage) lab.Asset {
	if p.K3s != nil {
		return lab.Asset{Foreign: string(ubuntu.Head("ubuntu 24.04")), QCOW2: true, Version: "v24.04.0", Platform: "nocloud"}
	}

	return lab.Asset{
		Schematic: schematicOf(image), Version: p.Talos, Platform: string(p.Platform), ISO: true,
		SecureBoot: image.SecureBoot,
	}
}

// publish makes the factory know what the operator's own images carry, and serve those that are downloaded from
// elsewhere.
func publish(f *factory.Factory, p *plan.Plan) {
	for _, pool := range p.Pools {
		image := pool.Image
		if image.FactoryURL != "" {
			continue
		}

		f.AddAs(schematicOf(image), carried(image))

		if image.URL != "" {
			f.Mirror(mirrored(image.URL), isoOf(p, image))
		}
	}
}

// mirrored is the path at which the lab serves what a URL outside it holds.
func mirrored(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "/" // the plan does not let it get here
	}

	return "/" + u.Host + u.Path
}

// templateImage is what is on the disk of a template.
func templateImage(p *plan.Plan, image plan.BootImage) *talos.Image {
	c := carried(image).Customization

	return &talos.Image{
		Version: p.Talos, Platform: string(p.Platform), SecureBoot: image.SecureBoot,
		Schematic: talos.Schematic{
			ID: schematicOf(image), Extensions: c.SystemExtensions.OfficialExtensions,
			KernelArgs: c.ExtraKernelArgs,
		},
	}
}
