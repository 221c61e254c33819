package talos

import (
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"

	"talos-proxmox/tests/lab/machine"
)

// The platforms an image can be made for.
const (
	Metal   = "metal"
	NoCloud = "nocloud"
)

// Schematic is what an Image Factory schematic puts into an image.
type Schematic struct {
	// ID is the schematic's id, empty for a plain image.
	ID string
	// Extensions are names as the factory lists them: "siderolabs/qemu-guest-agent".
	Extensions []string
	// KernelArgs are added to the platform's own.
	KernelArgs []string
	// META holds initial values of the META partition, by key.
	META map[uint8]string
}

func (s Schematic) clone() Schematic {
	s.Extensions = slices.Clone(s.Extensions)
	s.KernelArgs = slices.Clone(s.KernelArgs)
	s.META = maps.Clone(s.META)

	return s
}

// Image is a Talos boot medium: an ISO, which runs from memory and installs to a disk, or a disk image, which is the
// installed system already.
type Image struct {
	Schematic
	// Version is the Talos version, "v1.12.4".
	Version string
	// Platform is Metal or NoCloud.
	Platform string
	// ISO tells an ISO from a disk image.
	ISO bool
	// SecureBoot says that the image is signed. A machine without keys of its own takes those of the image that it boots.
	SecureBoot bool
}

// CloneContent implements [machine.Content].
func (i *Image) CloneContent() machine.Content {
	c := i.clone()

	return &c
}

func (i *Image) clone() Image {
	c := *i
	c.Schematic = i.Schematic.clone()

	return c
}

// has tells whether the image carries an extension, by its name without the author.
func (i *Image) has(extension string) bool {
	return slices.ContainsFunc(i.Extensions, func(e string) bool { return e[strings.LastIndex(e, "/")+1:] == extension })
}

// kernelArg returns the value of a kernel argument; the last one counts.
func (i *Image) kernelArg(name string) (string, bool) {
	value, found := "", false

	for _, arg := range i.cmdline() {
		if k, v, _ := strings.Cut(arg, "="); k == name {
			value, found = v, true
		}
	}

	return value, found
}

// cmdline is the kernel command line: the platform's part (Talos: platform/metal, platform/nocloud KernelArgs), then
// the schematic's.
func (i *Image) cmdline() []string {
	args := []string{
		"talos.platform=" + i.Platform, "console=ttyS0", "init_on_alloc=1", "slab_nomerge", "pti=on",
		"consoleblank=0",
	}
	if i.Platform == NoCloud {
		args = append(args, "net.ifnames=0")
	}

	if i.ISO {
		args = append(args, "talos.halt_if_installed=1")
	}

	return append(args, i.KernelArgs...)
}

// Installed is a disk that Talos runs from. It is never changed, only replaced on its disk.
type Installed struct {
	// Image is what was installed.
	Image Image
	// META is the META partition.
	META map[uint8]string
	// Config is the machine configuration on the STATE partition, nil before one was applied.
	Config []byte

	// what the firmware keeps: it has keys, and starts nothing that they did not sign. A real one has them on another disk,
	// where they outlive a system that was wiped.
	enrolled bool

	// the EPHEMERAL partition
	kubelet  *x509.PEMEncodedCertificateAndKey
	etcd     *membership
	images   []pulled
	recovery []byte // a snapshot of etcd that was uploaded

	// what the boot loader knows
	previous *Image // the system before the present one
	fresh    bool   // the present one has not come up yet
	staged   *Image // to be installed by the next boot
}

// CloneContent implements [machine.Content].
func (i *Installed) CloneContent() machine.Content { return i.with(func(*Installed) {}) }

// with returns a changed copy.
func (i *Installed) with(change func(*Installed)) *Installed {
	c := *i
	c.Image = i.Image.clone()
	c.META = maps.Clone(i.META)
	c.Config = slices.Clone(i.Config)

	if c.META == nil {
		c.META = map[uint8]string{}
	}

	change(&c)

	return &c
}

// install returns the disk that an image becomes: a disk image on its first boot, or what an installer writes. META
// values of the medium come along.
func install(image Image, meta map[uint8]string) *Installed {
	image = image.clone()
	image.ISO = false
	i := &Installed{Image: image, META: map[uint8]string{}, enrolled: image.SecureBoot}
	maps.Copy(i.META, meta)
	maps.Copy(i.META, image.META)

	return i
}
