package factory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Schematic is what an image is made of besides Talos itself. Its fields, their order and the way it is written are
// those of github.com/siderolabs/image-factory/pkg/schematic: the id depends on all three.
type Schematic struct {
	Owner         string        `yaml:"owner,omitempty"`
	Overlay       Overlay       `yaml:"overlay,omitempty"`
	Customization Customization `yaml:"customization"`
}

// Plain is the id of the schematic that changes nothing.
const Plain = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// Overlay is for boards.
type Overlay struct {
	Image   string         `yaml:"image"`
	Name    string         `yaml:"name"`
	Options map[string]any `yaml:"options,omitempty"`
}

// Customization is the part that matters for virtual machines.
type Customization struct {
	EmbeddedMachineConfiguration string `yaml:"embeddedMachineConfiguration,omitempty"`

	ExtraKernelArgs  []string         `yaml:"extraKernelArgs,omitempty"`
	Meta             []MetaValue      `yaml:"meta,omitempty"`
	SystemExtensions SystemExtensions `yaml:"systemExtensions,omitempty"`
	Bootloader       string           `yaml:"bootloader,omitempty"`
	SecureBoot       SecureBoot       `yaml:"secureboot,omitempty"`
	DiskImage        DiskImage        `yaml:"diskImage,omitempty"`
}

// DiskImage says how a disk image is made.
type DiskImage struct {
	SectorSize uint `yaml:"sectorSize,omitempty"`
}

// MetaValue is an initial value of the META partition.
type MetaValue struct {
	Key   uint8  `yaml:"key"`
	Value string `yaml:"value"`
}

// SystemExtensions lists extensions by name: "siderolabs/qemu-guest-agent".
type SystemExtensions struct {
	OfficialExtensions []string `yaml:"officialExtensions,omitempty"`
}

// SecureBoot says how signed images bring their keys. The lab's do as they do without it: machines without keys take them.
type SecureBoot struct {
	EnrollKeys                   string `yaml:"enrollKeys,omitempty"`
	IncludeWellKnownCertificates bool   `yaml:"includeWellKnownCertificates,omitempty"`
}

// notPlayed names what of a schematic would make a machine behave otherwise than the lab's do; empty: nothing.
func (s *Schematic) notPlayed() string {
	switch {
	case s.Owner != "":
		return "owner of a schematic"
	case s.Overlay.Name != "":
		return "overlay"
	case s.Customization.EmbeddedMachineConfiguration != "":
		return "embedded machine configuration"
	case s.Customization.DiskImage.SectorSize > 512:
		return "sectors of another size than 512 bytes"
	default:
		return ""
	}
}

// Parse reads a schematic. Fields it does not know are an error.
func Parse(data []byte) (*Schematic, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)

	var s Schematic
	if err := dec.Decode(&s); err != nil {
		return nil, err
	}

	if b := s.Customization.Bootloader; b != "" && !slices.Contains([]string{"none", "dual-boot", "sd-boot", "grub"}, b) {
		return nil, fmt.Errorf("%s does not belong to BootloaderKind values", b)
	}

	return &s, nil
}

// text is the canonical one.
func (s *Schematic) text() []byte {
	text, err := yaml.Marshal(s)
	if err != nil {
		panic(err) // it holds nothing but what YAML can say
	}

	return text
}

// ID is the hash of the canonical text.
func (s *Schematic) ID() string {
	sum := sha256.Sum256(s.text())

	return hex.EncodeToString(sum[:])
}
