package preflight

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
)

func TestImages(t *testing.T) {
	const volume = "local:iso/talos-1.12.4.iso"
	there := map[string]int64{volume: 100 << 20}

	h := &preflighttest.ManyHosts{Volumes: map[string]map[string]int64{"a": there, "b": there}}
	_, err := check(t, plantest.ISO(t), h)
	require.NoError(t, err)
	assert.Equal(t, 2, h.Asked, "each host is asked once")

	_, err = check(t, plantest.ISO(t),
		&preflighttest.ManyHosts{Volumes: map[string]map[string]int64{"a": {volume: 9}, "b": {"local:iso/Talos-1.12.4.iso": 100 << 20}}})
	require.EqualError(t, err, `the configuration has 2 problems:
  - image.iso.volume: has 9 bytes on host a: that is not an image (given: local:iso/talos-1.12.4.iso); upload it again
  - image.iso.volume: is not on host b (given: local:iso/talos-1.12.4.iso); upload it there, or name one that is; case matters`)

	// What nodes have been made from may go.
	gone := &preflighttest.ManyHosts{}
	for _, n := range plantest.ISO(t).Nodes() {
		gone.Listed = append(gone.Listed, proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: n.Host})
	}

	_, err = check(t, plantest.ISO(t), gone)
	require.NoError(t, err)
	assert.Zero(t, gone.Asked)

	// But not while one of them is to be made again.
	p := plantest.ISO(t)
	again := p.Nodes()[0]
	p.Replace = []string{again.Name}
	report, err := check(t, p, gone)
	require.NoError(t, err, "the state may say that it was made again already")
	require.EqualError(t, report.CheckReplacements([]plan.Node{again}), `the configuration has 1 problem:
  - image.iso.volume: is not on host a, and lifecycle.replace names `+again.Name+` (given: local:iso/talos-1.12.4.iso); `+
		`upload it there, or name one that is; case matters; or take the names out of lifecycle.replace`)
	require.NoError(t, report.CheckReplacements(p.Nodes()[1:]))
}
