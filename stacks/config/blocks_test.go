package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/machineconfig"
	"talos-proxmox/components/spec"
)

// withBlock is a stack with a list that is written in one of the places for it: of the cluster, of pools and of nodes.
func withBlock(name, place, list string) []byte {
	in := func(key string) string {
		if key == place {
			key = key[strings.LastIndex(key, ".")+1:]

			return ", " + key + ": " + list
		}

		return ""
	}

	return fmt.Appendf(nil, `config:
  talos-proxmox:proxmox: { endpoint: "https://pve.lan:8006", tokenId: pulumi@pve!talos, hosts: [{ name: pve }] }
  talos-proxmox:cluster: { name: %s, versions: { talos: v1.12.4, kubernetes: v1.34.2 }%s%s }
  talos-proxmox:image:
    source: template
    template: { control: talos-v1.12.4-base, worker: talos-v1.12.4-base, gpuWorker: talos-v1.12.4-base }
  talos-proxmox:network: { cidr: 10.0.0.0/24, gateway: 10.0.0.1 }
  talos-proxmox:pools:
    control: { role: controlplane, addresses: 10.0.0.11-13, nodes: { "1": { cores: 4%s } }%s }
    worker: { role: worker, addresses: 10.0.0.21-29, nodes: { "1": { cores: 4%s } }%s }
    gpu: { role: worker, addresses: 10.0.0.31-39, gpus: { "1": { host: pve, bdf: "0000:01:00.0"%s } }%s }
`, name, in("cluster.patches"), in("cluster.manifests"), in("pools.control.nodes.1.patches"),
		in("pools.control.patches"), in("pools.worker.nodes.1.patches"), in("pools.worker.patches"),
		in("pools.gpu.gpus.1.patches"), in("pools.gpu.patches"))
}

// TestBlocks: a patch or a manifest may be written as a block of keys in every place that takes one. A wrong one is the
// only problem that it makes, by itself and with others.
func TestBlocks(t *testing.T) {
	t.Parallel()

	const (
		right  = "[{ machine: { sysctls: { vm.max_map_count: '262144' } } }]"
		wrong  = "[{ machine: { sysctl: { vm.max_map_count: '262144' } } }]"
		object = "[{ apiVersion: v1, kind: Namespace, metadata: { name: apps } }]"
		faulty = "[{ apiVersion: v1, metadata: { name: apps } }]"
	)

	for _, place := range []string{
		"cluster.patches", "cluster.manifests", "pools.control.patches", "pools.control.nodes.1.patches",
		"pools.worker.patches", "pools.worker.nodes.1.patches", "pools.gpu.patches", "pools.gpu.gpus.1.patches",
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()

			good, bad, said := right, wrong, "unknown keys found during decoding: machine.sysctl"
			if place == "cluster.manifests" {
				good, bad, said = object, faulty, "document 1 has no kind"
			}

			require.NoError(t, checkBlock(t, withBlock("home", place, good)))

			err := checkBlock(t, withBlock("home", place, bad))

			var alone spec.Problems
			require.ErrorAs(t, err, &alone)
			require.Len(t, alone, 1, err.Error())
			assert.Equal(t, place+"[0]", alone[0].Path)
			assert.Contains(t, alone[0].Rule, said)

			var all spec.Problems
			require.ErrorAs(t, checkBlock(t, withBlock("Home", place, bad)), &all)
			require.Len(t, all, 2)
			assert.Equal(t, "cluster.name", all[0].Path)
			assert.Equal(t, place+"[0]", all[1].Path)
			assert.Contains(t, all[1].Rule, said)
		})
	}
}

// checkBlock loads a stack and checks its patches as preflight does.
func checkBlock(t *testing.T, stack []byte) error {
	t.Helper()

	c, err := LoadText(stack, t.TempDir())
	if err != nil {
		return err
	}

	p, err := c.Plan()
	if err != nil {
		return err
	}

	_, err = machineconfig.Check(p)

	return err
}
