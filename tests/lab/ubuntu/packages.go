package ubuntu

import (
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/interp"
)

const (
	// dpkgStatus names what is installed, a package on each line. Real ones say more.
	dpkgStatus = "/var/lib/dpkg/status"
	archive    = "http://archive.ubuntu.com/ubuntu"
	// aptSources holds the mirror that packages come from, if not the archive. Real ones say more.
	aptSources = "/etc/apt/sources.list.d/ubuntu.sources"
)

// archive is where the machine gets packages.
func (s *system) archive() string {
	if mirror, stated := s.on.files.read(aptSources); stated {
		return mirror
	}

	return archive
}

func (s *system) installed(name string) bool {
	text, _ := s.on.files.read(dpkgStatus)

	return slices.Contains(strings.Split(text, "\n"), name)
}

// dpkgQuery says whether a package is installed.
func (s *system) dpkgQuery(hc interp.HandlerContext, name string) int {
	if !s.installed(name) {
		fmt.Fprintln(hc.Stderr, "dpkg-query: no packages found matching "+name)

		return 1
	}

	fmt.Fprint(hc.Stdout, "installed")

	return 0
}

// aptUpdate gets the lists of packages.
func (s *system) aptUpdate(hc interp.HandlerContext) int {
	if err := s.fetch(s.archive()); err != nil {
		fmt.Fprintf(hc.Stderr, "E: Failed to fetch %s: %v\n", s.archive(), err)

		return 100
	}

	return 0
}

// aptInstall installs a package. There is every one.
func (s *system) aptInstall(hc interp.HandlerContext, name string) int {
	if err := s.fetch(s.archive() + "/pool/" + name); err != nil {
		fmt.Fprintf(hc.Stderr, "E: Failed to fetch %s/pool/%s: %v\n", s.archive(), name, err)

		return 100
	}

	s.on.files.append(dpkgStatus, "\n"+name)

	return 0
}
