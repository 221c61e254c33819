package vms

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// withISO is a Proxmox VE whose VMs have an ISO file in a drive.
type withISO struct {
	preflighttest.ManyHosts

	err error
}

func (p *withISO) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{CDROMs: map[string]string{"ide2": "local:iso/talos.iso,media=cdrom"}}, p.err
}

// TestISODrives: what is not known of ISO files in drives ends the checks only where a node is to move.
func TestISODrives(t *testing.T) {
	broken := errors.New("broken")

	const (
		pinned  = "leaves the ISO file in the drives of VMs on host a, which pins them to it"
		unknown = "could not determine whether an ISO file is in the drives of w-1, w-2, which would pin them to their hosts: broken"
	)

	for name, c := range map[string]struct {
		config, stores   error
		planned          string
		rebalance, fails bool
		problem, warning string
	}{
		"pinned":                         {planned: "a", warning: pinned},
		"pinned, and to move":            {planned: "b", rebalance: true, problem: "w-1 cannot move from host a to b"},
		"no settings":                    {planned: "a", config: broken, warning: unknown},
		"no settings, elsewhere":         {planned: "b", config: broken, warning: unknown},
		"no settings, not to move":       {planned: "a", rebalance: true, config: broken, warning: unknown},
		"no settings, and to move":       {planned: "b", rebalance: true, config: broken, fails: true},
		"no datastores":                  {planned: "a", stores: broken, warning: unknown},
		"no datastores, and to move":     {planned: "b", rebalance: true, stores: broken, fails: true},
		"a host that does not answer":    {planned: "a", config: proxmoxapi.ErrHostUnreachable},
		"settings that may not be read":  {planned: "a", config: proxmoxapi.ErrRefused, fails: true},
		"datastores of no Proxmox VE":    {planned: "a", stores: proxmoxapi.ErrUnreachable, fails: true},
		"settings of an unreachable one": {planned: "a", config: proxmoxapi.ErrUnreachable, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan.Plan{Bootstrap: spec.BootstrapExternal, Rebalance: c.rebalance, Pools: []plan.PlannedPool{{
				Name: "w", Nodes: []plan.Node{
					{Name: "w-1", VMID: 501, Host: c.planned, CDROM: "ide2"},
					{Name: "w-2", VMID: 502, Host: c.planned, CDROM: "ide2"},
				},
			}}}

			s := New(checks.New(p, &withISO{preflighttest.ManyHosts{
				Shared: map[string]bool{"local": false}, SharedErr: c.stores,
			}, c.config}))
			s.VMs = []proxmoxapi.VM{{ID: 501, Host: "a", Name: "w-1"}, {ID: 502, Host: "a", Name: "w-2"}}

			require.Equal(t, c.fails, s.CheckISODrives(t.Context()) != nil)

			for found, want := range map[*spec.Problems]string{&s.Problems: c.problem, &s.Warnings: c.warning} {
				if want == "" {
					assert.Empty(t, *found)
				} else {
					require.NotEmpty(t, *found)
					assert.Contains(t, (*found)[0].String(), want)
				}
			}

			assert.LessOrEqual(t, len(s.Warnings), 1, "once for all nodes")
		})
	}
}
