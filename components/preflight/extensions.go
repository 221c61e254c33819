package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
	"talos-proxmox/components/spelling"
)

// checkExtensions checks that the factory has the extensions for this version of Talos: it takes any name, and fails
// when a host downloads the image.
func (c *checker) checkExtensions(ctx context.Context) error {
	known := map[string][]string{}

	for _, pool := range c.Plan.Pools {
		factory := pool.Image.FactoryURL
		if factory == "" || len(pool.Image.Extensions) == 0 || len(pool.Nodes) == 0 {
			continue
		}

		if _, asked := known[factory]; !asked {
			all, err := c.network.Extensions(ctx, factory, c.Plan.Talos)
			if err == nil && len(all) == 0 {
				err = fmt.Errorf("it has none for Talos %s", c.Plan.Talos)
			}

			if err != nil {
				c.Warnings = append(c.Warnings, spec.Problem{
					Path: "image.factory", Rule: "could not be queried for its extensions, which were not " +
						"checked: " + err.Error(),
					Value: factory,
				})
			}

			known[factory] = all
		}

		c.checkExtensionsOf(pool, known[factory])
	}

	return ctx.Err()
}

// renamed are the names that the factory still takes for extensions that have another one (image-factory:
// internal/profile, extensionNameAlias).
var renamed = map[string]string{
	"siderolabs/amdgpu-firmware":                "siderolabs/amdgpu",
	"siderolabs/gasket":                         "siderolabs/gasket-driver",
	"siderolabs/i915-ucode":                     "siderolabs/i915",
	"siderolabs/nonfree-kmod-nvidia":            "siderolabs/nonfree-kmod-nvidia-lts",
	"siderolabs/nvidia-container-toolkit":       "siderolabs/nvidia-container-toolkit-lts",
	"siderolabs/nvidia-fabricmanager":           "siderolabs/nvidia-fabric-manager-lts",
	"siderolabs/nvidia-open-gpu-kernel-modules": "siderolabs/nvidia-open-gpu-kernel-modules-lts",
	"siderolabs/talos-vmtoolsd":                 "siderolabs/vmtoolsd-guest-agent",
	"siderolabs/usb-modem":                      "siderolabs/usb-modem-drivers",
	"siderolabs/v4l-uvc":                        "siderolabs/v4l-uvc-drivers",
	"siderolabs/xe-guest-utilities":             "siderolabs/xen-guest-agent",
}

func (c *checker) checkExtensionsOf(pool plan.PlannedPool, known []string) {
	if len(known) == 0 {
		return
	}

	for _, name := range pool.Image.Extensions {
		full := name
		if !strings.Contains(name, "/") {
			full = "siderolabs/" + name
		}

		if slices.Contains(known, full) || slices.Contains(known, renamed[full]) {
			continue
		}

		// What all pools have is set for the cluster.
		path := "pools." + pool.Name + ".image.extensions"
		if !slices.ContainsFunc(c.Plan.Pools, func(other plan.PlannedPool) bool {
			return !slices.Contains(other.Image.Extensions, name)
		}) {
			path = "image.factory.extensions"
		}

		remedy := "see " + pool.Image.FactoryURL + "/version/" + c.Plan.Talos + "/extensions/official"
		if near := spelling.Nearest(full, known, len(full)/3); near != "" {
			remedy = fmt.Sprintf("did you mean %q?", strings.TrimPrefix(near, "siderolabs/"))
		}

		c.Problems.Add(path, "must be an extension that the factory has for Talos "+c.Plan.Talos, name, remedy)
	}
}
