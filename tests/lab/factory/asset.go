package factory

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// Asset is one image: a schematic for a version, a platform, a form.
type Asset struct {
	Schematic string // id
	Version   string // "v1.12.4"
	Platform  string // "metal" or "nocloud"
	ISO       bool   // or else a disk image
	// Compression of a disk image is "xz", "zst" or empty.
	Compression string
}

// architecture is the only one that the lab's machines have.
const architecture = "-amd64"

// ParseFile reads the name of a file that the factory offers: "nocloud-amd64.iso", "metal-amd64.raw.zst". Forms that the
// lab has no use for are not known to it.
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
	case a.Compression != "":
		return a.Platform + architecture + ".raw." + a.Compression
	default:
		return a.Platform + architecture + ".raw"
	}
}

// magic begins each image of the lab. Real ones begin otherwise, but the lab's hosts must recognise what they downloaded.
const magic = "lab talos image "

// HeadSize is how much of an image Identify needs.
const HeadSize = 256

// head is the beginning of the image, which says what it is.
func (a Asset) head() []byte {
	text := fmt.Sprintf("%s%s %s %s\n", magic, a.Schematic, a.Version, a.File())

	return append([]byte(text), make([]byte, HeadSize-len(text))...)
}

// Identify tells from the beginning of a file which image it is.
func Identify(head []byte) (Asset, bool) {
	text, ok := strings.CutPrefix(string(head), magic)
	if !ok {
		return Asset{}, false
	}

	line, _, ok := strings.Cut(text, "\n")
	fields := strings.Fields(line)

	if !ok || len(fields) != 3 {
		return Asset{}, false
	}

	a, err := ParseFile(fields[0], fields[1], fields[2])

	return a, err == nil
}

// size is about what the real image has.
func (a Asset) size() int64 {
	switch {
	case a.ISO:
		return 112 << 20
	case a.Compression == "":
		return 1306 << 20
	case a.Compression == "zst":
		return 101 << 20
	default:
		return 92 << 20
	}
}

// content is the image: its head, and noise that is the same each time.
func (a Asset) content(size int64) io.Reader {
	noise := rand.NewChaCha8(sha256.Sum256(a.head()))

	return io.LimitReader(io.MultiReader(strings.NewReader(string(a.head())), noise), size)
}
