package patches

import (
	"fmt"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	blockres "github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/components/plan"
)

// diskLink is how udev names a SCSI disk of Proxmox VE: after its place, which is its name in QEMU. Talos shows no
// serial number of such disks, whether one is set or not (Talos: issues 11348, 12073).
const diskLink = "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-"

// leastVolume is enough for any file system. The volume grows to the size of its disk, whenever that grows.
const leastVolume = "512MiB"

// volumes are the user volumes of a node.
func volumes(contract *talosconfig.VersionContract, p *plan.Plan, node plan.Node) ([]config.Document, error) {
	var (
		docs []config.Document
		err  error
	)

	for _, d := range node.Disks {
		if d.Volume == nil {
			continue
		}

		doc := block.NewUserVolumeConfigV1Alpha1()
		doc.MetaName = d.Volume.Name
		// Keys that are locked to STATE came with Talos 1.11.
		doc.EncryptionSpec = volumeEncryption(p, contract.VolumeConfigEncryptionSupported())
		doc.ProvisioningSpec.ProvisioningGrow = new(true)

		if err = doc.ProvisioningSpec.DiskSelectorSpec.Match.UnmarshalText(
			[]byte(fmt.Sprintf("'%s%s' in disk.symlinks", diskLink, d.Interface))); err != nil {
			return nil, err
		}

		if err = doc.ProvisioningSpec.ProvisioningMinSize.UnmarshalText([]byte(leastVolume)); err != nil {
			return nil, err
		}

		if doc.FilesystemSpec.FilesystemType, err = blockres.FilesystemTypeString(d.Volume.Filesystem); err != nil {
			return nil, err
		}

		docs = append(docs, doc)
	}

	return docs, nil
}
