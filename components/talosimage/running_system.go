package talosimage

import (
	"regexp"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/components/impact"
)

// fromFactory is how the Image Factory names its installers: the platform, then the schematic. Before Talos 1.10 it
// left the platform out. Those of signed systems say so.
var fromFactory = regexp.MustCompile(`/(?:([a-z]+)-)?installer(` + secureBoot + `)?/([0-9a-f]{64})$`)

// System is what a node with the configuration is to run.
func System(c config.Provider) impact.System {
	image, version := cutTag(c.Machine().Install().Image())
	s := impact.System{Talos: version}

	if m := fromFactory.FindStringSubmatch(image); m != nil {
		s.Platform, s.Schematic, s.SecureBoot = m[1], m[3], new(m[2] != "")
	} else if image == published {
		s.SecureBoot = new(false)
	}

	_, s.Kubernetes = cutTag(c.K8sKubeletConfig().Image())

	return s
}

// cutTag splits the name of an image; the tag is empty where there is none.
func cutTag(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")

	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}

	return image, ""
}
