package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/impact"
)

// TestSecureBoot brings a cluster up whose disks a TPM opens, from signed images of the factory, and upgrades it to the
// next signed system. One that is not signed is refused.
func TestSecureBoot(t *testing.T) {
	t.Parallel()

	text := strings.NewReplacer("kubernetes: v1.34.2 }", "kubernetes: v1.34.2 }\n    encryption: tpm",
		"source: factory", "source: factory\n    secureBoot: true",
		"  talos-proxmox:lifecycle", "  talos-proxmox:defaults: { tpm: true }\n  talos-proxmox:lifecycle",
	).Replace(pair{"factory", "metal", "iso", "static"}.stack())

	r := rehearse(t, stackFile(t, text))
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	for name := range vmids(r) {
		config := vmConfig(t, r, name)
		assert.Equal(t, "ovmf", config["bios"])
		assert.Contains(t, config["efidisk0"], "pre-enrolled-keys=0", "so that the firmware takes the keys of the image")
		assert.Contains(t, config["tpmstate0"], "version=v2.0")
	}

	machines := uuids(t, r)

	set(t, r.Stack, "cluster.versions.talos", "v1.13.9")

	table := impactTable(t, r)
	for name, row := range table {
		assert.Contains(t, row.Now, ", SecureBoot", "by the node's own word")
		require.Len(t, row.Settings, 1, name)
		assert.Contains(t, row.Settings[0].String(), "/metal-installer-secureboot/", name)
	}

	assert.Equal(t, map[string]impact.Effect{"pair-control-1": impact.EffectUpgrade, "pair-worker-1": impact.EffectUpgrade},
		effects(table))

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	assert.Equal(t, machines, uuids(t, r))
	requireNoChange(t, r.Stack)

	for _, n := range r.Nodes() {
		assert.Equal(t, "v1.13.9", n.Talos)
	}

	unset(t, r.Stack, "cluster.encryption")
	set(t, r.Stack, "image.secureBoot", "false")
	set(t, r.Stack, "cluster.versions.talos", "v1.14.1")
	assert.Contains(t, failPreview(t, r.Stack), "image.secureBoot: the node was booted with SecureBoot, and its firmware "+
		"would not start the unsigned system of this upgrade; set it to true")

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}

// TestSecureBootISO: an ISO file for SecureBoot that is not said to be one is found out before anything is installed.
func TestSecureBootISO(t *testing.T) {
	t.Parallel()

	r := rehearse(t, stackFile(t, strings.Replace(pair{"iso", "nocloud", "", "static"}.stack(),
		"source: iso", "source: iso\n    secureBoot: true", 1)))

	unset(t, r.Stack, "image.secureBoot")
	assert.Contains(t, failUp(t, r.Stack), "pair-control-1 is not configured: image.secureBoot: it was booted with "+
		"SecureBoot, and would not start the unsigned system that is to be installed")

	set(t, r.Stack, "image.secureBoot", "true")
	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))
	requireNoChange(t, r.Stack)

	destroy(t, r.Stack)
	assert.Empty(t, r.Leftovers())
}
