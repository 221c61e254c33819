package talos

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block/blockhelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/tests/lab/machine"
)

// storedConfig is the configuration a boot begins with: that of the STATE partition, or what the platform has.
func (n *node) storedConfig() config.Provider {
	if i := n.installed(); i != nil && len(i.Config) > 0 {
		if cfg, err := loadConfig(i.Config); err == nil {
			return cfg
		}
	}

	return n.platformConfig()
}

// platformConfig is the user data of a nocloud machine, unless it is cloud-init's own format (Talos: platform/nocloud,
// Configuration).
func (n *node) platformConfig() config.Provider {
	if n.image.Platform != NoCloud || n.hw.CloudInit == nil || n.hw.CloudInit.Format != NoCloud ||
		n.hw.CloudInit.UserData == "" {
		return nil
	}

	first, _, _ := strings.Cut(n.hw.CloudInit.UserData, "\n")
	if strings.TrimSpace(first) == "#cloud-config" {
		return nil
	}

	cfg, err := loadConfig([]byte(n.hw.CloudInit.UserData))
	if err != nil {
		n.sys.log("failed to load the platform's configuration: %v", err)

		return nil
	}

	if _, err := n.validateStatic(cfg, n.mode(false)); err != nil {
		n.sys.log("the platform's configuration is not valid: %v", err)

		return nil
	}

	return cfg
}

// installSystem is what a machine that runs from a medium does with its first configuration (Talos: the install
// sequence).
func (n *node) installSystem(cfg config.Provider) next {
	n.setStage(StageInstalling)
	n.announce("install", "", machineapi.SequenceEvent_START)

	image, err := n.installerImage(cfg.Machine().Install().Image())

	var disk *machine.Disk
	if err == nil {
		disk, err = n.installDisk(cfg.Machine().Install())
	}

	if !n.wait("install", n.fw.opts.Latencies.Install) {
		return powerCut
	}

	if err != nil {
		// the sequence fails, and the machine reboots to where it came from
		n.sys.log("install failed: %v", err)

		return hardReset
	}

	image.KernelArgs = append(image.KernelArgs, cfg.Machine().Install().ExtraKernelArgs()...)

	n.mu.Lock()
	meta := maps.Clone(n.meta)
	n.mu.Unlock()

	installed := install(image, meta)
	installed.Config = configBytes(cfg)
	installed.enrolled = n.image.SecureBoot // by the medium
	disk.Write(installed)

	return kexec
}

var (
	factoryRef = regexp.MustCompile(`^[^/]+/(?:[a-z-]*installer(-secureboot)?)/([0-9a-f]{64})(?::(v[^:@]+))?(?:@.*)?$`)
	plainRef   = regexp.MustCompile(`^.*installer[a-z-]*:(v[^:@]+)(?:@.*)?$`)
)

// errNoInstaller is about an image that is something else (Talos: internal/pkg/install/pull.go).
var errNoInstaller = errors.New("installer help returned non-zero exit. assuming invalid installer")

// installerImage is what an installer would write. The platform is that of the running system: the installer is told.
func (n *node) installerImage(ref string) (Image, error) {
	image := Image{Version: n.image.Version, Platform: n.image.Platform}

	switch m := factoryRef.FindStringSubmatch(ref); {
	case m != nil:
		schematic, ok := n.fw.opts.Schematic(m[2])
		if !ok {
			return image, notPulled(ref)
		}

		image.Schematic, image.SecureBoot = schematic.clone(), m[1] != ""

		if m[3] != "" {
			image.Version = m[3]
		}
	case ref == "": // Talos' default: the plain installer of its own version
	default:
		m := plainRef.FindStringSubmatch(ref)
		if m == nil {
			return image, errNoInstaller
		}

		image.Version = m[1]

		if unpublished(ref) {
			return image, notPulled(ref)
		}
	}

	if !n.fw.opts.Release(image.Version) {
		return image, notPulled(ref)
	}

	return image, nil
}

// installDisk finds the disk that machine.install names, by path or by what it matches.
func (n *node) installDisk(in talosconfig.Install) (*machine.Disk, error) {
	match, err := in.DiskMatchExpression()
	if err != nil {
		return nil, err
	}

	path := in.Disk()

	if match != nil {
		found, err := blockhelpers.MatchDisks(n.ctx, n.state, match)
		if err != nil {
			return nil, err
		}

		if len(found) == 0 {
			return nil, fmt.Errorf("no disks matched the expression: %s", match)
		}

		path = found[0].TypedSpec().DevPath
	}

	for i, d := range n.hw.Disks {
		if path == "/dev/"+deviceName(n.hw.Disks, i) {
			return d, nil
		}
	}

	if path == "" {
		return nil, errors.New("no install disk is configured")
	}

	return nil, fmt.Errorf("lstat %s: no such file or directory", path)
}

// deviceName is the kernel's name of the ith disk: letters go by bus, in the order of the interfaces.
func deviceName(disks []*machine.Disk, i int) string {
	kind := func(d *machine.Disk) string {
		if strings.HasPrefix(d.Interface, "virtio") {
			return "vd"
		}

		return "sd"
	}

	letter := 'a'

	for _, d := range disks[:i] {
		if kind(d) == kind(disks[i]) {
			letter++
		}
	}

	return kind(disks[i]) + string(letter)
}

// diskSpec describes the ith disk as Talos' block subsystem does.
func diskSpec(disks []*machine.Disk, i int) block.DiskSpec {
	d := disks[i]
	spec := block.DiskSpec{
		IOSize: 512, SectorSize: 512, Rotational: true, Transport: "virtio", SubSystem: "/sys/class/block",
		DevPath: "/dev/" + deviceName(disks, i), Model: "QEMU HARDDISK", Modalias: "scsi:t-0x00",
		BusPath: "/pci0000:00/0000:00:05.0/0000:01:01.0/virtio3/host2/target2:0:0/2:0:0:0",
	}

	// Talos shows no serial numbers of QEMU's disks (issues 11348, 12073); udev names SCSI disks after their drive.
	if strings.HasPrefix(d.Interface, "scsi") {
		spec.Symlinks = []string{"/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-" + d.Interface}
	}

	if strings.HasPrefix(d.Interface, "virtio") {
		spec.Model, spec.Modalias = "", "virtio:d00000002v00001AF4"
	}

	spec.SetSize(uint64(d.Size()))

	return spec
}
