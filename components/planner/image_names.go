package planner

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

var (
	// ubuntuVersion is a version in the name of a cloud image of Ubuntu.
	ubuntuVersion = regexp.MustCompile(`ubuntu-(\d{2}\.\d{2})(?:[^0-9]|$)`)
	// armName is an architecture in the name of an image, as Ubuntu and others write it.
	armName = regexp.MustCompile(`(?:^|[^a-z0-9])(?:arm64|aarch64)(?:[^a-z0-9]|$)`)
	// otherSystem is a release of Ubuntu that K3s nodes are not installed on, or another distribution.
	otherSystem = regexp.MustCompile(`^(?:bionic|focal|oracular|plucky|questing|debian|fedora|centos|rocky|` +
		`almalinux|opensuse|alpine)(?:[^a-z]|$)`)
)

// checkCloudImageName says what the name of a cloud image, the last part of a URL or a volume, tells of its system:
// nodes find that out themselves, when they are there.
func (r *resolver) checkCloudImageName(key, given, address string) {
	name := strings.ToLower(path.Base(address))
	if armName.MatchString(name) {
		r.Problems.Add(key, "is for another architecture than the VMs, which are amd64", given, "use the image for amd64")
	}

	m := ubuntuVersion.FindStringSubmatch(name)
	if m != nil && !slices.Contains(plan.UbuntuOfK3s(), m[1]) || m == nil && otherSystem.MatchString(name) {
		r.Warn(key, "seems to be of another system than Ubuntu "+strings.Join(plan.UbuntuOfK3s(), " or ")+
			": K3s is not installed on others", given,
			"use an image of one of these")
	}
}

var (
	// talosISO is what Talos and the Image Factory call their ISO files.
	talosISO = regexp.MustCompile(`(?:^|[^A-Za-z0-9])(metal|nocloud)-(amd64|arm64)(-secureboot)?\.iso$`)
	// factoryPath is where the Image Factory serves the images of a schematic.
	factoryPath = regexp.MustCompile(`/image/([0-9a-f]{64})/`)
)

// checkISOName compares what the name of an ISO file says with the configuration. The name is the path of a URL, or a
// volume; only names of Talos' own form say something.
func (r *resolver) checkISOName(path string, p *pool, image plan.BootImage, name, given string) {
	if r.IsK3s() {
		return // image.source is refused
	}

	// Whoever configures the nodes decides what is installed.
	refuse := r.addProblemOnce
	if r.Spec.Cluster.Bootstrap == spec.BootstrapExternal {
		refuse = r.warnOnce
	} else if m := factoryPath.FindStringSubmatch(name); m != nil {
		r.checkISOSchematic(path, p, image, m[1], given)
	}

	m := talosISO.FindStringSubmatch(name)
	if m == nil {
		return
	}

	platform, arch, signed := spec.Platform(m[1]), m[2], m[3] != ""

	if arch != "amd64" {
		r.addProblemOnce(path, "is for another architecture than the VMs, which are amd64", given,
			"use the file for amd64")
	}

	if want := r.Spec.Image.Platform; platform != want {
		report, rule := r.warnOnce, `is for another platform than image.platform "`+string(want)+`"`
		// Anything else comes up, and is installed for the platform of the configuration.
		if platform == spec.PlatformMetal && r.Spec.Network.Addressing == spec.AddressingStatic {
			report, rule = refuse, rule+": Talos on metal ignores the cloud-init drive, where nodes find their addresses"
		}

		report(path, rule, given, "change one of the two")
	}

	switch {
	case signed && !image.SecureBoot:
		refuse(path, "is for SecureBoot, and "+secureBootKey(p)+" is false: nodes would be installed without it", given,
			"change one of the two")
	case !signed && image.SecureBoot && !strings.Contains(strings.ToLower(name), "secureboot"):
		refuse(path, "is not for SecureBoot, and "+secureBootKey(p)+" is true", given,
			"use the file "+m[1]+"-"+arch+"-secureboot.iso, or change "+secureBootKey(p))
	}
}

// checkISOSchematic: the installer brings what the configuration says that the image holds, and nothing else of it.
func (r *resolver) checkISOSchematic(path string, p *pool, image plan.BootImage, id, given string) {
	key := "image.schematic"
	if p.Image.Schematic != nil || p.Image.ISO != nil {
		key = p.path + ".image.schematic"
	}

	switch isSet := r.Spec.Image.Schematic != nil || p.Image.Schematic != nil; {
	case id == spec.VanillaSchematic:
	case !isSet:
		// Nodes that run were installed so, and setting it upgrades them.
		r.warnOnce(key, "is not set, and the ISO file is that of a schematic: nodes are installed without its extensions "+
			"and kernel arguments", given, "set it to "+id+", unless none are needed")
	case image.SchematicID != "" && image.SchematicID != id && image.SchematicID != spec.VanillaSchematic:
		r.warnOnce(path, "is the file of another schematic than "+key+", which new nodes are installed from", given,
			"change one of the two, unless this is intended")
	}
}
