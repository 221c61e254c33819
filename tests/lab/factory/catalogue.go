package factory

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// DefaultVersions are the Talos versions on offer, oldest first: the last ones of each minor version that is in use.
func DefaultVersions() []string {
	var out []string

	for _, line := range []struct {
		minor   string
		patches int
	}{{"v1.9", 6}, {"v1.10", 9}, {"v1.11", 6}, {"v1.12", 11}, {"v1.13", 9}, {"v1.14", 1}} {
		for i := range line.patches + 1 {
			out = append(out, fmt.Sprintf("%s.%d", line.minor, i))
		}
	}

	return out
}

// extensions are the official ones, without the author.
const extensions = `amazon-ena amd-ucode amdgpu binfmt-misc bnx2-bnx2x btrfs chelsio-drivers chelsio-firmware cloudflared crun ctr
	drbd dvb-cx23885 dvb-m88ds3103 ecr-credential-provider fuse3 gasket-driver glibc gvisor gvisor-debug hailort hello-world-service i915
	intel-ice-firmware intel-ucode iscsi-tools kata-containers lldpd mdadm mei metal-agent nebula netbird newt nfs-utils nfsd nfsrahead
	nonfree-kmod-nvidia-lts nonfree-kmod-nvidia-production nut-client nvidia-container-toolkit-lts nvidia-container-toolkit-production
	nvidia-fabricmanager-lts nvidia-fabricmanager-production nvidia-open-gpu-kernel-modules-lts nvidia-open-gpu-kernel-modules-production
	nvme-cli panfrost qemu-guest-agent qlogic-firmware realtek-firmware revpi-firmware spin stargz-snapshotter tailscale tenstorrent
	thunderbolt uinput usb-audio-drivers usb-modem-drivers util-linux-tools v4l-uvc-drivers vc4 vmtoolsd-guest-agent wasmedge
	xen-guest-agent youki zerotier zfs`

// Extensions returns the names of the official extensions, in alphabetical order.
func Extensions() []string {
	var out []string
	for _, name := range strings.Fields(extensions) {
		out = append(out, "siderolabs/"+name)
	}

	return out
}

// renamed are extensions under names that the factory still takes (image-factory: internal/profile, extensionNameAlias).
var renamed = map[string]string{
	"v4l-uvc": "v4l-uvc-drivers", "usb-modem": "usb-modem-drivers", "gasket": "gasket-driver",
	"talos-vmtoolsd": "vmtoolsd-guest-agent", "xe-guest-utilities": "xen-guest-agent",
	"nvidia-container-toolkit":       "nvidia-container-toolkit-lts",
	"nvidia-open-gpu-kernel-modules": "nvidia-open-gpu-kernel-modules-lts",
	"nonfree-kmod-nvidia":            "nonfree-kmod-nvidia-lts",
	"i915-ucode":                     "i915", "amdgpu-firmware": "amdgpu",
}

// available says whether an image may have an extension.
func available(name string) bool {
	other, old := renamed[strings.TrimPrefix(name, "siderolabs/")]

	return slices.Contains(Extensions(), name) || old && slices.Contains(Extensions(), "siderolabs/"+other)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))

	return "sha256:" + hex.EncodeToString(sum[:])
}
