// Package running compares the configuration that a node of Talos runs with the one that it is to get: what Talos takes
// and would harm the node or the cluster later is refused, what does not have the expected effect is warned of. It is
// pure.
package running

import (
	"maps"
	"slices"
	"strings"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	blockres "github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/spec"
)

// CheckEncryption refuses to give a node a configuration that does not open the volumes that it has. Talos
// encrypts a volume when it creates it, and never later: at the next boot it finds a file system where it expects LUKS,
// or the other way round, or has no key that fits, and does not start (Talos: block/internal/volumes/encrypt.go). Of
// STATE, Talos keeps how to open it in META as soon as the configuration is active, so that the node does not find its
// configuration any more. statuses are those of the node's volumes, by their ID; a volume of which there is none is
// taken to be as the running configuration says. remedy says what to do instead of the change.
func CheckEncryption(
	running, wanted talosconfig.Provider, statuses map[string]blockres.VolumeStatusSpec, remedy string,
) error {
	now, later := keysOfVolumes(running), keysOfVolumes(wanted)

	for _, id := range slices.Sorted(maps.Keys(later)) {
		is, there := now[id]
		status, known := statuses[id]

		if !there || known && status.Phase == blockres.VolumePhaseFailed {
			continue // a new volume, or one that the change may be what repairs
		}

		if known && (status.Phase == blockres.VolumePhaseReady || status.Phase == blockres.VolumePhasePrepared) {
			is = openedWith(status, is)
		}

		if want := later[id]; !opens(is, want) {
			return encryptionProblem(id, is, want, remedy)
		}
	}

	return nil
}

func encryptionProblem(id string, is, want []volumeKey, remedy string) spec.Problem {
	how, value := "without encryption", "no encryption"

	if len(is) > 0 {
		how = "with encryption " + keyKinds(is)
	}

	if len(want) > 0 {
		value = keyKinds(want)
	}

	if len(is) > 0 && keyKinds(is) == value {
		value += ", another key"
	}

	return spec.Problem{
		Path: "cluster.encryption", Rule: "does not change on a node that runs: its volume " + volumeName(id) +
			" was created " + how + ", and Talos would not open it at the next boot",
		Value: value, Remedy: remedy,
	}
}

// volumeKey is a key that opens a volume.
type volumeKey struct {
	kind string
	// detail is what a key of a kind is made from, slot its place in the header of the volume; of a key whose detail is
	// not known, only its kind is.
	detail string
	slot   int
	locked bool
	known  bool
}

// unknownKind is the kind of a key of which nothing is known.
const unknownKind = "unknown"

func (k volumeKey) equal(other volumeKey) bool {
	if k.known && other.known {
		return k == other
	}

	return k.kind == other.kind || k.kind == unknownKind || other.kind == unknownKind
}

// opens says whether one of the keys that are to be opens a volume. Talos exchanges the others when it has opened it.
func opens(is, want []volumeKey) bool {
	if len(is) == 0 || len(want) == 0 {
		return len(is) == len(want)
	}

	return slices.ContainsFunc(want, func(k volumeKey) bool { return slices.ContainsFunc(is, k.equal) })
}

// openedWith are the keys that a volume was opened with at the last boot, where the running configuration says is. It
// may have been changed since.
func openedWith(status blockres.VolumeStatusSpec, is []volumeKey) []volumeKey {
	if status.EncryptionProvider == blockres.EncryptionProviderNone {
		return nil
	}

	var found []volumeKey
	for _, kind := range status.ConfiguredEncryptionKeys {
		found = append(found, volumeKey{kind: kind})
	}

	switch {
	case len(found) == 0 && len(is) == 0:
		return []volumeKey{{kind: unknownKind}} // before Talos 1.12
	case len(found) == 0 || slices.Equal(kindsOf(is), kindsOf(found)):
		return is
	default:
		return found
	}
}

// keysOfVolumes are the keys of the volumes of a configuration, by the ID of the volume: none of one that is not
// encrypted.
func keysOfVolumes(cfg talosconfig.Provider) map[string][]volumeKey {
	all := map[string][]volumeKey{}

	for id, encryption := range machineconfig.VolumeEncryption(cfg) {
		all[id] = volumeKeys(encryption)
	}

	return all
}

func volumeKeys(encryption config.EncryptionConfig) []volumeKey {
	if encryption == nil {
		return nil
	}

	var all []volumeKey

	for _, key := range encryption.Keys() {
		k := volumeKey{slot: key.Slot(), locked: key.LockToSTATE(), known: true}

		switch {
		case key.Static() != nil:
			k.kind, k.detail = blockres.EncryptionKeyStatic.String(), string(key.Static().Key())
		case key.NodeID() != nil:
			k.kind = blockres.EncryptionKeyNodeID.String()
		case key.KMS() != nil:
			k.kind = blockres.EncryptionKeyKMS.String() // its server may have moved
		case key.TPM() != nil:
			k.kind = blockres.EncryptionKeyTPM.String()
		}

		all = append(all, k)
	}

	return all
}

// keyKinds say how a volume is encrypted, without what is secret.
func keyKinds(keys []volumeKey) string { return strings.Join(kindsOf(keys), " and ") }

func kindsOf(keys []volumeKey) []string {
	var kinds []string
	for _, k := range keys {
		kinds = append(kinds, k.kind)
	}

	slices.Sort(kinds)

	return slices.Compact(kinds)
}

// volumeName is the name that an operator knows a volume by.
func volumeName(id string) string {
	if prefix, name, found := strings.Cut(id, "-"); found && len(prefix) == 1 {
		return name
	}

	return id
}
