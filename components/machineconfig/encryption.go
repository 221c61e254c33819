package machineconfig

import (
	"slices"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	blockres "github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// VolumeEncryption is how the volumes of a configuration are encrypted, by the ID of the volume: nil for one that is
// not.
func VolumeEncryption(cfg talosconfig.Provider) map[string]config.EncryptionConfig {
	all := map[string]config.EncryptionConfig{}

	for _, id := range slices.Concat(
		[]string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel, constants.ImageCachePartitionLabel},
		config.PromotableSystemVolumeNames,
	) {
		volume, there := cfg.Volumes().ByName(id)
		encryption := volume.Encryption()

		if encryption == nil && cfg.Machine() != nil {
			encryption = cfg.Machine().SystemDiskEncryption().Get(id)
		}

		// Every node has these two, whether they are configured or not.
		if there || id == constants.StatePartitionLabel || id == constants.EphemeralPartitionLabel {
			all[id] = encryption
		}
	}

	for _, volume := range cfg.UserVolumeConfigs() {
		all[constants.UserVolumePrefix+volume.Name()] = volume.Encryption()
	}

	for _, volume := range cfg.RawVolumeConfigs() {
		all[constants.RawVolumePrefix+volume.Name()] = volume.Encryption()
	}

	for _, volume := range cfg.SwapVolumeConfigs() {
		all[constants.SwapVolumePrefix+volume.Name()] = volume.Encryption()
	}

	for id, e := range all {
		if e != nil && e.Provider() == blockres.EncryptionProviderNone {
			all[id] = nil
		}
	}

	return all
}

// sealed says whether a volume has a key that a TPM seals, and whether all keys of one are such.
func sealed(cfg talosconfig.Provider) (some, all bool) {
	isSealed := func(key config.EncryptionKey) bool { return key.TPM() != nil }

	for _, encryption := range VolumeEncryption(cfg) {
		if encryption == nil || !slices.ContainsFunc(encryption.Keys(), isSealed) {
			continue
		}

		some = true
		all = all || !slices.ContainsFunc(encryption.Keys(), func(key config.EncryptionKey) bool { return !isSealed(key) })
	}

	return some, all
}

// missingForSealing says what a node lacks to seal keys with a TPM, as with cluster.encryption "tpm"; nil: nothing. The
// public key that Talos seals with is in the images for SecureBoot only.
func missingForSealing(pool plan.PlannedPool, node plan.Node) []string {
	var missing []string

	if !pool.Image.SecureBoot {
		missing = append(missing, "keys of volumes are sealed with a TPM, which needs image.secureBoot: Talos seals keys "+
			"only when it was booted with SecureBoot")
	}

	if !node.TPM {
		missing = append(missing, "keys of volumes are sealed with a TPM, which needs tpm: true in the pool or in defaults")
	}

	return missing
}

// sealingRequirements are of a node whose volumes have no other key. What is in a template, only its owner knows.
func sealingRequirements(p *plan.Plan, pool plan.PlannedPool, node plan.Node) []requirement {
	if p.Source == spec.SourceTemplate {
		return nil
	}

	var all []requirement

	for _, rule := range missingForSealing(pool, node) {
		all = append(all, requirement{rule: rule, broken: func(cfg talosconfig.Provider) bool {
			_, only := sealed(cfg)

			return only
		}})
	}

	return all
}

// sealingDoubts are those of a node whose volumes open with other keys, or whose template may bring what is needed.
func sealingDoubts(p *plan.Plan, node plan.Node, cfg talosconfig.Provider) []string {
	some, only := sealed(cfg)
	if !some || only && p.Source != spec.SourceTemplate {
		return nil
	}

	return missingForSealing(p.PoolOf(node), node)
}
