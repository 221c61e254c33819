package vms

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// oneConfig is a Proxmox VE whose VMs have one configuration.
type oneConfig struct {
	preflighttest.Healthy

	config proxmoxapi.VMConfig
}

func (c oneConfig) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return c.config, nil
}

// TestIncomplete: what is off and lacks its tags or its disk was never whole. A disk that is too small may be a running
// node's.
func TestIncomplete(t *testing.T) {
	p := plantest.ISO(t)
	n := p.Nodes()[0]
	config := proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 40}}
	ours := proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: "a", Tags: []string{"c", "talos"}, Stopped: true}

	with := func(change func(*proxmoxapi.VM, *proxmoxapi.VMConfig)) (proxmoxapi.VM, proxmoxapi.VMConfig) {
		v, c := ours, config
		change(&v, &c)

		return v, c
	}

	small := func(_ *proxmoxapi.VM, c *proxmoxapi.VMConfig) { c.Disks = map[string]int{"scsi0": 10} }

	for name, c := range map[string]struct {
		change func(*proxmoxapi.VM, *proxmoxapi.VMConfig)
		want   []string
	}{
		"whole": {func(*proxmoxapi.VM, *proxmoxapi.VMConfig) {}, nil},
		"a copy of the template": {func(v *proxmoxapi.VM, c *proxmoxapi.VMConfig) {
			v.Tags, c.Disks = nil,
				map[string]int{"scsi0": 10}
		}, []string{n.Name}},
		"with too small a disk": {small, nil},
		"without its disk":      {func(_ *proxmoxapi.VM, c *proxmoxapi.VMConfig) { c.Disks = nil }, []string{n.Name}},
		"it runs": {func(v *proxmoxapi.VM, c *proxmoxapi.VMConfig) {
			v.Stopped, v.Tags, c.Disks = false,
				nil, nil
		}, nil},
		"another VM with that VMID": {func(v *proxmoxapi.VM, _ *proxmoxapi.VMConfig) { v.Name, v.Tags = "mail", nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v, config := with(c.change)

			s := New(checks.New(p, oneConfig{config: config}))
			s.VMs = []proxmoxapi.VM{v}
			require.NoError(t, s.CheckIdentities(t.Context()))
			require.NoError(t, s.CheckIncomplete(t.Context()))
			assert.Equal(t, c.want, s.Incomplete)
		})
	}
}

// TestWithoutSettings: a copy of a template that runs without its settings is named, before a refresh takes it into the
// state.
func TestWithoutSettings(t *testing.T) {
	p := plantest.ISO(t)
	n := p.Nodes()[0]

	const made, given = "110ec58a-a0f2-4ac4-8393-c866d813b8d1", "6c84fb90-12c4-11e1-840d-7b25c5ee775a"

	problems := func(uuid, tags string) []string {
		s := New(checks.New(p, oneConfig{config: proxmoxapi.VMConfig{UUID: uuid, Settings: map[string]string{
			"description": vmidentity.Describe("Talos", given), "tags": tags,
		}}}))
		s.VMs = []proxmoxapi.VM{{ID: n.VMID, Name: n.Name, Host: "a"}}
		require.NoError(t, s.CheckIdentities(t.Context()))
		require.NoError(t, s.CheckIncomplete(t.Context()))
		assert.Empty(t, s.Incomplete)

		var said []string
		for _, p := range s.Problems {
			said = append(said, p.String())
		}

		return said
	}

	assert.Empty(t, problems(given, "c;talos"), "as it was to be")
	assert.Empty(t, problems(given, ""), "it lost its tags")
	assert.Empty(t, problems(made, "c;talos"), "a copy of the node")
	assert.Equal(t, []string{fmt.Sprintf("pools.%s: VM %d on host a is a copy of a template without its settings, "+
		"which Proxmox VE, or a proxy in its place, accepted but did not apply (given: %s); nothing was set up on "+
		"it: delete it ('qm "+
		"stop %d', 'qm destroy %d --purge' on host a), then run 'pulumi up --refresh'",
		n.Pool, n.VMID, n.Name, n.VMID, n.VMID)}, problems(made, ""))
}
