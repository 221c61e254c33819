package planner

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
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
