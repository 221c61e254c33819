package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair is a boot source with a way of addressing.
type pair struct{ source, platform, format, addressing string }

func (p pair) String() string {
	return strings.Join(strings.Fields(strings.Join([]string{p.source, p.format, p.platform, p.addressing}, " ")), "-")
}

// legalPairs are all that can come up (components/plan refuses the others, each with its reason).
func legalPairs() []pair {
	var all []pair

	for _, source := range []struct{ name, format string }{
		{"template", ""},
		{"iso", ""},
		{"factory", "iso"},
		{"factory", "disk"},
	} {
		for _, platform := range []string{"metal", "nocloud"} {
			for _, addressing := range []string{"static", "reserved", "agent", "reported"} {
				// One metal image for all has no place for the address of each.
				if addressing != "static" || platform == "nocloud" || source.name == "factory" {
					all = append(all, pair{source.name, platform, source.format, addressing})
				}
			}
		}
	}

	return all
}

// sampled are the pairs that are tried each time. Together they hold every source, platform, format and addressing.
var sampled = map[string]bool{
	"template-metal-agent":         true,
	"template-nocloud-static":      true,
	"iso-metal-agent":              true,
	"iso-nocloud-static":           true,
	"factory-iso-metal-static":     true,
	"factory-iso-nocloud-reserved": true,
	"factory-disk-metal-reported":  true,
	"factory-disk-nocloud-static":  true,
}

// allPairs asks for every legal pair instead of the sample.
const allPairs = "TALOS_PROXMOX_ALL_PAIRS"

// stack is a configuration of one control plane and one worker on two hosts.
func (p pair) stack() string {
	image := map[string]string{
		"template": "template: { control: talos-v1.12.4-base, worker: talos-v1.12.4-base }\n    schematic: [qemu-guest-agent]",
		"iso":      "iso: { volume: local:iso/talos-1.12.4.iso }\n    schematic: [qemu-guest-agent]",
		"factory":  "factory: { format: " + p.format + ", extensions: [qemu-guest-agent] }",
	}[p.source]

	ssh := ""
	if p.format == "disk" {
		ssh = "\n    ssh: { username: root }"
	}

	control, worker := "addresses: 10.40.0.11-13", "addresses: 10.40.0.21-29"
	if p.addressing == "agent" {
		control, worker = "cores: 2", "cores: 2"
	}

	return fmt.Sprintf(`config:
  talos-proxmox:proxmox:
    endpoint: https://pve.lan:8006
    tokenId: pulumi@pve!talos
    hosts: [{ name: pve1 }, { name: pve2 }]%s
  talos-proxmox:cluster:
    name: pair
    versions: { talos: v1.12.4, kubernetes: v1.34.2 }
  talos-proxmox:image:
    source: %s
    platform: %s
    %s
  talos-proxmox:network:
    addressing: %s
    cidr: 10.40.0.0/16
    gateway: 10.40.0.1
  talos-proxmox:lifecycle: { keepImages: false, agentTimeout: 20s, nodeTimeout: 60s, readyTimeout: 60s }
  talos-proxmox:pools:
    control: { role: controlplane, count: 1, %s }
    worker: { role: worker, count: 1, %s }
`, ssh, p.source, p.platform, image, p.addressing, control, worker)
}

// TestSources brings up every pair of source and addressing, or a sample of them, and holds that a second run, a
// preview and a refresh find nothing to do, and that nothing is left in the end.
func TestSources(t *testing.T) {
	t.Parallel()

	if os.Getenv(allPairs) == "" {
		t.Logf("a sample of %d out of %d pairs; %s=1 tries all", len(sampled), len(legalPairs()), allPairs)
	}

	tried := 0

	for _, p := range legalPairs() {
		if os.Getenv(allPairs) == "" && !sampled[p.String()] {
			continue
		}

		tried++

		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			bringUp(t, p)
		})
	}

	if os.Getenv(allPairs) == "" {
		require.Equal(t, len(sampled), tried, "a name in the sample is no pair")
	}
}

func bringUp(t *testing.T, p pair) {
	file := filepath.Join(t.TempDir(), "Pulumi.pair.yaml")
	require.NoError(t, os.WriteFile(file, []byte(p.stack()), 0o600))

	r := rehearse(t, file)
	before := r.Lab.World().Snapshot()

	up(t, r.Stack)
	require.NoError(t, r.WaitReady(t.Context(), wait))

	deployed := r.Lab.World().Snapshot()

	for i, n := range r.Nodes() {
		planned := r.Plan.Nodes()[i]
		assert.True(t, n.Ready, n.State)
		assert.Equal(t, planned.MAC, n.MAC)

		if planned.Address.IsValid() {
			assert.Equal(t, planned.Address.String(), n.Address)
		}
	}

	requireOnlySame(t, upChanges(t, r.Stack))
	requireSettled(t, r.Stack)
	assert.Equal(t, deployed, r.Lab.World().Snapshot())

	destroy(t, r.Stack)
	assert.Equal(t, before, r.Lab.World().Snapshot())
}
