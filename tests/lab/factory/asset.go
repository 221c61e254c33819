package factory

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Asset is one image: a schematic for a version, a platform, a form.
type Asset struct {
	Schematic string // id
	Version   string // "v1.12.4"
	Platform  string // "metal" or "nocloud"
	ISO       bool   // or else a disk image
	QCOW2     bool   // a disk image in QEMU's own format instead of a raw one
	// SecureBoot says that the image is signed, and brings the keys that its signature is checked with.
	SecureBoot bool
	// Foreign is how an image begins that is not of the factory's making, but served or kept as one; empty: it is.
	Foreign string
	// Compression of a disk image is "xz", "zst", "gz", "tar.gz" or empty.
	Compression string
}

// architecture is the only one that the lab's machines have.
const architecture = "-amd64"

// secureBoot is in the names of signed images.
const secureBoot = "-secureboot"

// errNotPlayed is about what the factory has and the lab has no use for.
var errNotPlayed = errors.New("the lab's Image Factory does not make it")

// other are the files that the factory makes besides images for the lab's machines (image-factory: internal/profile,
// ParseFromPath).
var other = regexp.MustCompile(`^(kernel|cmdline|initramfs|installer)-|-installer-.*\.tar$|-uki\.efi$|\.(vhd|ova)(\.|$)|` +
	`-arm64(-secureboot)?\.`)

// platforms are those of Talos that the lab's machines are not.
var platforms = regexp.MustCompile(`^(akamai|aws|azure|cloudstack|digital-ocean|equinixMetal|exoscale|gcp|hcloud|` +
	`nutanix|opennebula|openstack|oracle|scaleway|upcloud|vmware|vultr)-`)

// compressions are those of disk images.
var compressions = []string{"tar.gz", "gz", "xz", "zst"}

// ParseFile reads the name of a file that the factory offers: "nocloud-amd64.iso", "metal-amd64.raw.zst".
func ParseFile(schematic, version, file string) (Asset, error) {
	if !strings.HasPrefix(version, "v") {
		version = "v" + version
	}

	a := Asset{Schematic: schematic, Version: version}

	if other.MatchString(file) || platforms.MatchString(file) {
		return a, fmt.Errorf("%w: %s", errNotPlayed, file)
	}

	stem, form, _ := strings.Cut(file, ".")
	form, a.Compression, _ = strings.Cut(form, ".")

	switch form {
	case "iso":
		a.ISO = true
	case "raw":
	case "qcow2":
		a.QCOW2 = true
	default:
		return a, fmt.Errorf("invalid profile path: %q", file)
	}

	if a.Compression != "" && (a.ISO || !slices.Contains(compressions, a.Compression)) {
		return a, fmt.Errorf("invalid profile path: %q", file)
	}

	stem, a.SecureBoot = strings.CutSuffix(stem, secureBoot)

	platform, ok := strings.CutSuffix(stem, architecture)
	if !ok || platform != "metal" && platform != "nocloud" {
		return a, fmt.Errorf("invalid platform-arch: %q", stem)
	}

	a.Platform = platform

	return a, nil
}

// File is the name that ParseFile reads.
func (a Asset) File() string {
	form := ".raw"

	switch {
	case a.ISO:
		form = ".iso"
	case a.QCOW2:
		form = ".qcow2"
	}

	if a.Compression != "" {
		form += "." + a.Compression
	}

	if a.SecureBoot {
		return a.Platform + architecture + secureBoot + form
	}

	return a.Platform + architecture + form
}

// size is about what the real image has.
func (a Asset) size() int64 {
	switch {
	case a.Foreign != "":
		return 600 << 20
	case a.ISO:
		return 112 << 20
	case a.Compression == "xz":
		return 92 << 20
	case a.Compression != "":
		return 101 << 20
	case a.QCOW2:
		return 214 << 20
	default:
		return 1306 << 20
	}
}
