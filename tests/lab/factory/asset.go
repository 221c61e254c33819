package factory

import (
	"fmt"
	"strings"
)

// Asset is one image: a schematic for a version, a platform, a form.
type Asset struct {
	Schematic string // id
	Version   string // "v1.12.4"
	Platform  string // "metal" or "nocloud"
	ISO       bool   // or else a disk image
	QCOW2     bool   // a disk image in QEMU's own format instead of a raw one
	// Foreign is how an image begins that is not of the factory's making, but served or kept as one; empty: it is.
	Foreign string
	// Compression of a raw disk image is "xz", "zst" or empty.
	Compression string
}

// architecture is the only one that the lab's machines have.
const architecture = "-amd64"

// ParseFile reads the name of a file that the factory offers: "nocloud-amd64.iso", "metal-amd64.raw.zst". Forms that
// the lab has no use for are not known to it.
func ParseFile(schematic, version, file string) (Asset, error) {
	if !strings.HasPrefix(version, "v") {
		version = "v" + version
	}

	a := Asset{Schematic: schematic, Version: version}

	stem, form, _ := strings.Cut(file, ".")

	switch form {
	case "iso":
		a.ISO = true
	case "raw":
	case "qcow2":
		a.QCOW2 = true
	case "raw.xz", "raw.zst":
		a.Compression = strings.TrimPrefix(form, "raw.")
	default:
		return a, fmt.Errorf("invalid profile path: %q", file)
	}

	platform, ok := strings.CutSuffix(stem, architecture)
	if !ok || platform != "metal" && platform != "nocloud" {
		return a, fmt.Errorf("invalid platform-arch: %q", stem)
	}

	a.Platform = platform

	return a, nil
}

// File is the name that ParseFile reads.
func (a Asset) File() string {
	switch {
	case a.ISO:
		return a.Platform + architecture + ".iso"
	case a.QCOW2:
		return a.Platform + architecture + ".qcow2"
	case a.Compression != "":
		return a.Platform + architecture + ".raw." + a.Compression
	default:
		return a.Platform + architecture + ".raw"
	}
}

// size is about what the real image has.
func (a Asset) size() int64 {
	switch {
	case a.Foreign != "":
		return 600 << 20
	case a.ISO:
		return 112 << 20
	case a.QCOW2:
		return 214 << 20
	case a.Compression == "zst":
		return 101 << 20
	case a.Compression == "xz":
		return 92 << 20
	default:
		return 1306 << 20
	}
}
