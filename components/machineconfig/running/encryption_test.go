package running

import (
	"testing"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	blockres "github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// TestRunningEncryption: what Talos would not open at the next boot is refused before it is applied.
func TestRunningEncryption(t *testing.T) {
	const (
		other   = "cluster.encryption: does not change on a node that runs: its volume "
		lost    = ", and Talos would not open it at the next boot (given: "
		nodeID  = "provider: luks2\n  keys: [{ slot: 0, nodeID: {} }]"
		tpm     = "provider: luks2\n  keys: [{ slot: 0, tpm: {} }]"
		both    = "provider: luks2\n  keys: [{ slot: 0, nodeID: {} }, { slot: 1, tpm: {} }]"
		moved   = "provider: luks2\n  keys: [{ slot: 1, nodeID: {} }]"
		secret  = "provider: luks2\n  keys: [{ slot: 0, static: { passphrase: planted-one } }]"
		another = "provider: luks2\n  keys: [{ slot: 0, static: { passphrase: planted-two } }]"
	)

	for name, c := range map[string]struct {
		running, wanted talosconfig.Provider
		statuses        map[string]blockres.VolumeStatusSpec
		refused         string
	}{
		"none":     {volume(t, "", ""), volume(t, "", ""), nil, ""},
		"as it is": {volume(t, "EPHEMERAL", nodeID), volume(t, "EPHEMERAL", nodeID), nil, ""},
		"added": {
			volume(t, "", ""), volume(t, "STATE", nodeID), nil, other + "STATE was created without encryption" + lost + "nodeID); undo",
		},
		"removed": {
			volume(t, "STATE", nodeID), volume(t, "", ""), nil,
			other + "STATE was created with encryption nodeID" + lost + "no encryption); undo",
		},
		"another kind": {
			volume(t, "EPHEMERAL", nodeID), volume(t, "EPHEMERAL", tpm), nil,
			other + "EPHEMERAL was created with encryption nodeID" + lost + "tpm); undo",
		},
		"a second key":       {volume(t, "STATE", nodeID), volume(t, "STATE", both), nil, ""},
		"without the second": {volume(t, "STATE", both), volume(t, "STATE", tpm), nil, "(given: tpm)"},
		"another slot":       {volume(t, "STATE", nodeID), volume(t, "STATE", moved), nil, "(given: nodeID, another key)"},
		"another passphrase": {volume(t, "STATE", secret), volume(t, "STATE", another), nil, "(given: static, another key)"},
		"in the older form": {
			parsed(t, "machine: { type: worker, systemDiskEncryption: { state: { provider: luks2, keys: [{ slot: 0, nodeID: {} }] } } }"),
			volume(t, "STATE", nodeID), nil, "",
		},
		"in the older form, added": {
			volume(t, "", ""),
			parsed(t, "machine: { type: worker, systemDiskEncryption: { state: { keys: [{ slot: 0, nodeID: {} }] } } }"), nil,
			"STATE was created without encryption",
		},
		"a user volume": {
			userVolume(t, ""), userVolume(t, nodeID), nil, other + "data was created without encryption" + lost + "nodeID); undo",
		},
		"a new user volume": {volume(t, "", ""), userVolume(t, nodeID), nil, ""},
		"a swap volume": {
			swapVolume(t, ""), swapVolume(t, nodeID), nil, "data was created without encryption",
		},
		// The configuration was changed, and the node did not boot since.
		"taken back": {
			volume(t, "STATE", nodeID), volume(t, "", ""), opened("STATE"), "",
		},
		"changed by hand before": {
			volume(t, "STATE", nodeID), volume(t, "STATE", nodeID), opened("STATE"), "STATE was created without encryption",
		},
		"another kind, taken back": {
			volume(t, "STATE", tpm), volume(t, "STATE", nodeID), opened("STATE", "nodeID"), "",
		},
		"removed, taken back":       {volume(t, "", ""), volume(t, "STATE", nodeID), opened("STATE", "nodeID"), ""},
		"removed before Talos 1.12": {volume(t, "", ""), volume(t, "STATE", nodeID), encrypted("STATE"), ""},
		"the kinds are not known":   {volume(t, "STATE", nodeID), volume(t, "STATE", tpm), encrypted("STATE"), "(given: tpm)"},
		"it is the repair": {
			volume(t, "EPHEMERAL", nodeID), volume(t, "", ""),
			map[string]blockres.VolumeStatusSpec{"EPHEMERAL": {Phase: blockres.VolumePhaseFailed}},
			"",
		},
		"on its way up": {
			volume(t, "", ""), volume(t, "STATE", nodeID),
			map[string]blockres.VolumeStatusSpec{"STATE": {Phase: blockres.VolumePhaseWaiting}},
			"STATE was created without encryption",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckEncryption(c.running, c.wanted, c.statuses, "undo")
			if c.refused == "" {
				assert.NoError(t, err)

				return
			}

			assert.ErrorContains(t, err, c.refused)
			assert.NotContains(t, err.Error(), "planted")
		})
	}
}

// TestRunningEncryptionOfPlans: what the program renders for a cluster is compared in the form of its version.
func TestRunningEncryptionOfPlans(t *testing.T) {
	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), talosconfig.TalosVersion1_12)
	require.NoError(t, err)

	for name, versions := range map[string]spec.Versions{
		"1.10": {Talos: "v1.10.7", Kubernetes: "v1.32.1"}, "1.12": plantest.Talos112,
	} {
		t.Run(name, func(t *testing.T) {
			rendered := func(encryption spec.Encryption) talosconfig.Provider {
				s := plantest.Atlas(versions)
				s.Cluster.Encryption = encryption
				p := plantest.New(t, s)
				cfg, err := machineconfig.FullConfiguration(p, p.Nodes()[0], bundle)
				require.NoError(t, err)

				return cfg
			}

			assert.NoError(t, CheckEncryption(rendered(""), rendered(""), nil, ""))
			assert.NoError(t, CheckEncryption(rendered("nodeID"), rendered("nodeID"), nil, ""))
			assert.Error(t, CheckEncryption(rendered(""), rendered("nodeID"), nil, ""))
			assert.Error(t, CheckEncryption(rendered("nodeID"), rendered(""), nil, ""))
		})
	}
}

func parsed(t *testing.T, text string) talosconfig.Provider {
	t.Helper()

	cfg, err := configloader.NewFromBytes([]byte(text))
	require.NoError(t, err)

	return cfg
}

const minimal = "version: v1alpha1\nmachine: { type: worker }\n"

// volume is a configuration with one volume of Talos'; none without a name.
func volume(t *testing.T, name, encryption string) talosconfig.Provider {
	t.Helper()

	if name == "" {
		return parsed(t, minimal)
	}

	return parsed(t, minimal+"---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: "+name+"\nencryption:\n  "+encryption+"\n")
}

func userVolume(t *testing.T, encryption string) talosconfig.Provider {
	t.Helper()

	return ownVolume(t, "UserVolumeConfig", encryption)
}

func swapVolume(t *testing.T, encryption string) talosconfig.Provider {
	t.Helper()

	return ownVolume(t, "SwapVolumeConfig", encryption)
}

func ownVolume(t *testing.T, kind, encryption string) talosconfig.Provider {
	t.Helper()

	text := minimal + "---\napiVersion: v1alpha1\nkind: " + kind + "\nname: data\nprovisioning:\n  minSize: 1GiB\n"
	if encryption != "" {
		text += "encryption:\n  " + encryption + "\n"
	}

	return parsed(t, text)
}

// opened is a volume that was opened with keys of these kinds, and is not encrypted where there are none.
func opened(id string, kinds ...string) map[string]blockres.VolumeStatusSpec {
	status := blockres.VolumeStatusSpec{Phase: blockres.VolumePhaseReady, ConfiguredEncryptionKeys: kinds}
	if len(kinds) > 0 {
		status.EncryptionProvider = blockres.EncryptionProviderLUKS2
	}

	return map[string]blockres.VolumeStatusSpec{id: status}
}

// encrypted is a volume of which Talos does not say with which keys.
func encrypted(id string) map[string]blockres.VolumeStatusSpec {
	return map[string]blockres.VolumeStatusSpec{id: {
		Phase: blockres.VolumePhaseReady, EncryptionProvider: blockres.EncryptionProviderLUKS2,
	}}
}
