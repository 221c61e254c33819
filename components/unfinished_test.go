package components

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// stopped is a Proxmox VE whose VMs have one configuration.
type stopped struct {
	Proxmox

	config proxmoxapi.VMConfig
}

func (s stopped) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return s.config, nil
}

// TestUnfinished: what runs is whole, and so is what has its disk, its MAC address and its tags.
func TestUnfinished(t *testing.T) {
	p := isoPlan(t)
	n := p.Nodes()[0]
	config := proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 40}, MACs: []string{n.MAC}}
	ours := proxmoxapi.VM{ID: n.VMID, Name: n.Name, Host: "a", Tags: []string{"c", "talos"}, Stopped: true}

	with := func(change func(*proxmoxapi.VM, *proxmoxapi.VMConfig)) (proxmoxapi.VM, proxmoxapi.VMConfig) {
		v, c := ours, config
		change(&v, &c)

		return v, c
	}

	small := func(_ *proxmoxapi.VM, c *proxmoxapi.VMConfig) { c.Disks = map[string]int{"scsi0": 10} }

	for name, c := range map[string]struct {
		change    func(*proxmoxapi.VM, *proxmoxapi.VMConfig)
		bootstrap plan.Owner
		want      []string
	}{
		"whole":                     {func(*proxmoxapi.VM, *proxmoxapi.VMConfig) {}, "", nil},
		"a copy of the template":    {func(v *proxmoxapi.VM, c *proxmoxapi.VMConfig) { v.Tags, c.MACs = nil, []string{"BC:24:11:00:00:01"} }, "", []string{n.Name}},
		"without its tags":          {func(v *proxmoxapi.VM, _ *proxmoxapi.VMConfig) { v.Tags = nil }, "", []string{n.Name}},
		"with the template's disk":  {small, "", []string{n.Name}},
		"somebody else configures":  {small, plan.External, nil},
		"without its disk":          {func(_ *proxmoxapi.VM, c *proxmoxapi.VMConfig) { c.Disks = nil }, "", []string{n.Name}},
		"it runs":                   {func(v *proxmoxapi.VM, c *proxmoxapi.VMConfig) { v.Stopped, v.Tags, c.Disks = false, nil, nil }, "", nil},
		"another VM with that VMID": {func(v *proxmoxapi.VM, _ *proxmoxapi.VMConfig) { v.Name, v.Tags = "mail", nil }, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			v, config := with(c.change)
			planned := *p

			if c.bootstrap != "" {
				planned.Bootstrap = c.bootstrap
			}

			s := newSurvey(&planned, stopped{config: config})
			s.vms = []proxmoxapi.VM{v}
			require.NoError(t, s.lookForUnfinished(t.Context()))
			assert.Equal(t, c.want, s.found.unfinished)
			assert.Equal(t, c.want != nil, s.found.halfMade(n))
		})
	}

	assert.False(t, (*Findings)(nil).halfMade(n), "nothing is known in a preview without Proxmox VE")
	assert.Len(t, whole(true), 1)
	assert.Empty(t, whole(false))
}
