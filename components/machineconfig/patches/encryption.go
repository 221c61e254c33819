package patches

import (
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	blockres "github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// diskEncryption encrypts what Talos keeps on its disk. It is said in a document for each volume since Talos 1.11.
func diskEncryption(contract *talosconfig.VersionContract, p *plan.Plan, m *v1alpha1.MachineConfig) []config.Document {
	if p.Encryption == "" {
		return nil
	}

	if !contract.VolumeConfigEncryptionSupported() {
		volume := func() *v1alpha1.EncryptionConfig {
			key := &v1alpha1.EncryptionKey{}

			if p.Encryption == spec.EncryptionTPM {
				key.KeyTPM = &v1alpha1.EncryptionKeyTPM{}
			} else {
				key.KeyNodeID = &v1alpha1.EncryptionKeyNodeID{}
			}

			return &v1alpha1.EncryptionConfig{
				EncryptionProvider: blockres.EncryptionProviderLUKS2.String(),
				EncryptionKeys:     []*v1alpha1.EncryptionKey{key},
			}
		}

		m.MachineSystemDiskEncryption = &v1alpha1.SystemDiskEncryptionConfig{
			StatePartition:     volume(),
			EphemeralPartition: volume(),
		}

		return nil
	}

	var docs []config.Document

	for _, name := range []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		doc := block.NewVolumeConfigV1Alpha1()
		doc.MetaName = name
		doc.EncryptionSpec = volumeEncryption(p, name != constants.StatePartitionLabel)
		docs = append(docs, doc)
	}

	return docs
}

// volumeEncryption is that of a volume; nothing without encryption.
func volumeEncryption(p *plan.Plan, lockToState bool) block.EncryptionSpec {
	key := block.EncryptionKey{}

	switch p.Encryption {
	case spec.EncryptionTPM:
		key.KeyTPM = &block.EncryptionKeyTPM{}
		// A disk whose STATE was exchanged must not give away the rest.
		if lockToState {
			key.KeyLockToSTATE = new(true)
		}
	case spec.EncryptionNodeID:
		key.KeyNodeID = &block.EncryptionKeyNodeID{}
	default:
		return block.EncryptionSpec{}
	}

	return block.EncryptionSpec{
		EncryptionProvider: blockres.EncryptionProviderLUKS2,
		EncryptionKeys:     []block.EncryptionKey{key},
	}
}
