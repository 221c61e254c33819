package preflight

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// oneProcess is a Proxmox VE whose VMs run.
type oneProcess struct{ healthy }

func (oneProcess) Process(context.Context, proxmoxapi.VM) (int, error) { return 4711, nil }

// TestMark: what is left to be done on a VM has its own mark, and what others have left there has none.
func TestMark(t *testing.T) {
	n := plan.Node{
		Name: "a", Pool: "p", VMID: 401, Cores: 4, MemoryMiB: 4096, CPUType: "host",
		Disks: []plan.Disk{{Interface: "scsi0", SizeGiB: 50}},
	}

	look := func(settings proxmoxapi.Settings) (proxmoxvm.State, []spec.Problem) {
		s := newChecks(&plan.Plan{}, oneProcess{}, quietNetwork{})
		require.NoError(t, s.checkVMState(t.Context(), n, proxmoxapi.VM{ID: 401, Host: "pve"}, settings))

		return s.report.states["a"], s.warnings
	}

	done, warned := look(proxmoxapi.Settings{Current: map[string]string{"scsi0": "tank:x,size=50G"}})
	assert.Equal(t, proxmoxvm.State{Running: true, Disks: []int{0}}, done)
	assert.Empty(t, warned)

	small, _ := look(proxmoxapi.Settings{Current: map[string]string{"scsi0": "tank:x,size=40G"}})
	assert.Equal(t, []int{0}, small.Disks)
	assert.Positive(t, small.Mark)

	owed, warned := look(proxmoxapi.Settings{Pending: map[string]string{"cores": "4", "memory": "current=4096"}})
	assert.Positive(t, owed.Mark)
	assert.NotEqual(t, small.Mark, owed.Mark)
	assert.Empty(t, warned)

	foreign, warned := look(proxmoxapi.Settings{Pending: map[string]string{"cores": "8", "vga": ""}})
	assert.Zero(t, foreign.Mark)
	require.Len(t, warned, 1)
	assert.Equal(t, "pools.p: settings of VM 401 on host pve wait for its restart: cores, vga (given: a); restart the "+
		"node when it suits, or take them back there "+
		"('qm set 401 --revert cores,vga'); an update that restarts the node applies them", warned[0].String())
}
