package preflight

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan/plantest"
	"talos-proxmox/components/proxmoxapi"
)

// oneConfig is a Proxmox VE whose VMs have one configuration.
type oneConfig struct {
	healthy

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

			s := newChecks(p, oneConfig{config: config}, quietNetwork{})
			s.vms = []proxmoxapi.VM{v}
			require.NoError(t, s.checkIdentities(t.Context()))
			require.NoError(t, s.checkIncomplete(t.Context()))
			assert.Equal(t, c.want, s.report.incomplete)
			assert.Equal(t, c.want != nil, s.report.Incomplete(n))
		})
	}

	assert.False(t, (*Report)(nil).Incomplete(n), "nothing is known in a preview without Proxmox VE")
}
