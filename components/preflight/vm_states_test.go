package preflight

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/preflighttest"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/spec"
)

// oneProcess is a Proxmox VE whose VMs run.
type oneProcess struct{ preflighttest.Healthy }

func (oneProcess) Process(context.Context, proxmoxapi.VM) (int, error) { return 4711, nil }

// TestMark: what is left to be done on a VM has its own mark, and what others have left there has none.
func TestMark(t *testing.T) {
	n := plan.Node{
		Name: "a", Pool: "p", CPUUnits: 50, VMID: 401, Cores: 4, MemoryMiB: 4096, CPUType: "host",
		Disks: []plan.Disk{{Interface: "scsi0", SizeGiB: 50}},
	}

	look := func(settings proxmoxapi.Settings) (proxmoxvm.State, []spec.Problem) {
		s := newChecker(&plan.Plan{}, oneProcess{}, quietNetwork{})
		require.NoError(t, s.checkVMState(t.Context(), n, proxmoxapi.VM{ID: 401, Host: "pve"}, settings))

		return s.States["a"], s.Warnings
	}

	current := map[string]string{"scsi0": "tank:x,size=50G", "cores": "4", "cpu": "host,flags=+aes", "cpuunits": "50"}
	done, warned := look(proxmoxapi.Settings{Current: current})
	assert.Equal(t, proxmoxvm.State{Running: true, Disks: []int{0}}, done)
	assert.Empty(t, warned)

	current["cpuunits"] = "1024"
	heavy, _ := look(proxmoxapi.Settings{Current: current})
	assert.Positive(t, heavy.Mark, "another CPU weight")

	small, _ := look(proxmoxapi.Settings{Current: map[string]string{"scsi0": "tank:x,size=40G"}})
	assert.Equal(t, []int{0}, small.Disks)
	assert.Positive(t, small.Mark)

	weight := map[string]string{"cpuunits": "50"}

	owed, warned := look(proxmoxapi.Settings{Current: weight, Pending: map[string]string{"cores": "4", "memory": "current=4096"}})
	assert.Positive(t, owed.Mark)
	assert.NotEqual(t, small.Mark, owed.Mark)
	assert.Empty(t, warned)

	foreign, warned := look(proxmoxapi.Settings{Current: weight, Pending: map[string]string{"cores": "8", "vga": ""}})
	assert.Zero(t, foreign.Mark)
	require.Len(t, warned, 1)
	assert.Equal(t, "pools.p: settings of VM 401 on host pve wait for its restart: cores, vga (given: a); restart the "+
		"node when it suits, or take them back there "+
		"('qm set 401 --revert cores,vga'); an update that restarts the node applies them", warned[0].String())
}

// TestWarnUnits: VMs keep the CPU weight that they have where none is stated, and the operator learns of it.
func TestWarnUnits(t *testing.T) {
	s := newChecker(&plan.Plan{}, oneProcess{}, quietNetwork{})

	for name, units := range map[string]string{"a": "1024", "b": "", "c": "100"} {
		require.NoError(t, s.checkVMState(t.Context(), plan.Node{Name: name}, proxmoxapi.VM{},
			proxmoxapi.Settings{Current: map[string]string{"cpuunits": units}}))
		assert.Zero(t, s.States[name].Mark)
	}

	s.warnUnits()
	require.Len(t, s.Warnings, 1)
	assert.Equal(t, "defaults.cpuUnits: is not stated, and a CPU weight of 1024 in place of 100, that of new VMs, have: a; "+
		"state 100 to change it while they run, or 1024 to keep it and give it to new VMs, too", s.Warnings[0].String())
}
