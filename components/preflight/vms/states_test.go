package vms

import (
	"cmp"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
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
		s := New(checks.New(&plan.Plan{}, oneProcess{}))
		require.NoError(t, s.checkState(t.Context(), n, proxmoxapi.VM{ID: 401, Host: "pve"}, settings))

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
	assert.Equal(t, "pools.p: settings of VM 401 on host pve wait for its restart: cores, vga (given: a); restart "+
		"the node when convenient, or revert them there ('qm set 401 --revert cores,vga'); an update that restarts "+
		"the node applies them", warned[0].String())
}

// TestMarkOfDisks: options of a disk that wait for a restart are left to be done where the plan has them.
func TestMarkOfDisks(t *testing.T) {
	disk := plan.Disk{Interface: "scsi1", SizeGiB: 50, Cache: "writeback", AIO: "io_uring", Discard: true}

	for name, c := range map[string]struct {
		template, current, pending string
		disk                       plan.Disk
		ours                       bool
	}{
		"as the plan has it": {
			current: "tank:x,cache=none,discard=on,size=50G", pending: "tank:x,cache=writeback,discard=on,size=50G",
			disk: disk, ours: true,
		},
		"another cache": {
			current: "tank:x,cache=none,discard=on,size=50G", pending: "tank:x,cache=unsafe,discard=on,size=50G", disk: disk,
		},
		"another volume": {
			current: "tank:x,cache=none,discard=on,size=50G", pending: "tank:y,cache=writeback,discard=on,size=50G", disk: disk,
		},
		"to be detached": {current: "tank:x,size=50G", disk: disk},
		"of another number": {
			current: "tank:x,size=50G", pending: "tank:x,cache=writeback,discard=on",
			disk: plan.Disk{Interface: "scsi2", SizeGiB: 50},
		},
		"a new disk on a SATA controller": {
			pending: "tank:x,cache=writeback,aio=io_uring,discard=on,size=50G", ours: true,
			disk: disk,
		},
		"written for a clone": {
			template: "9000", current: "tank:x,discard=on,size=50G",
			pending: "tank:x,aio=io_uring,cache=none,discard=on,iothread=0,ssd=0,size=50G", disk: disk, ours: true,
		},
		"changed by hand on a clone": {
			template: "9000", current: "tank:x,discard=on,size=50G", pending: "tank:x,cache=unsafe,discard=on,size=50G",
			disk: disk,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := plan.Node{Name: "a", Pool: "p", VMID: 401, Template: c.template, Disks: []plan.Disk{c.disk}}
			s := New(checks.New(&plan.Plan{}, oneProcess{}))
			current := map[string]string{}
			if c.current != "" {
				current["scsi1"] = c.current
			}

			require.NoError(t, s.checkState(t.Context(), n, proxmoxapi.VM{ID: 401, Host: "pve"},
				proxmoxapi.Settings{Current: current, Pending: map[string]string{"scsi1": c.pending}}))
			assert.Equal(t, c.ours, s.States["a"].Mark > 0)
			assert.Equal(t, c.ours, len(s.Warnings) == 0)
		})
	}
}

// TestWarnUnits: VMs keep the CPU weight that they have where none is set, and the operator learns of it.
func TestWarnUnits(t *testing.T) {
	s := New(checks.New(&plan.Plan{}, oneProcess{}))

	for name, units := range map[string]string{"a": "1024", "b": "", "c": "100"} {
		require.NoError(t, s.checkState(t.Context(), plan.Node{Name: name}, proxmoxapi.VM{},
			proxmoxapi.Settings{Current: map[string]string{"cpuunits": units}}))
		assert.Zero(t, s.States[name].Mark)
	}

	s.warnUnits()
	require.Len(t, s.Warnings, 1)
	assert.Equal(t, "defaults.cpuUnits: is not set, and these VMs have a CPU weight of 1024 instead of 100, the weight "+
		"of new VMs: a; set 100 to change it while they run, or 1024 to keep it and give it to new VMs, too",
		s.Warnings[0].String())
}

// settledVMs run with settings.
type settledVMs struct {
	preflighttest.Healthy

	current map[string]string
	bridges []proxmoxapi.Bridge
}

func (s *settledVMs) Bridges(context.Context, string) ([]proxmoxapi.Bridge, error) {
	return s.bridges, nil
}

func (s *settledVMs) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	return proxmoxapi.Settings{Current: s.current}, nil
}

// TestMTUOfExistingNodes: a change to a larger MTU than the bridge's is refused before the node is drained for it.
func TestMTUOfExistingNodes(t *testing.T) {
	n := plan.Node{Name: "a-1", Host: "pve", Pool: "a", VMID: 401, NICs: []plan.Interface{{Bridge: "vmbr0", MTU: 9000}}}
	for name, c := range map[string]struct {
		net0, want string
	}{
		"a change": {"virtio=BC:24:11:00:00:01,bridge=vmbr0", "pools.a.nics: must have an MTU of at most 1500, that of bridge " +
			"vmbr0 of host pve: a VM with a larger one does not start (given: 9000); lower network.mtu (or nics[].mtu), or " +
			"raise the MTU of the bridge there"},
		"another bridge": {"virtio=BC:24:11:00:00:01,bridge=vmbr1,mtu=9000", "pools.a.nics: must have an MTU"},
		"as it is":       {"virtio=BC:24:11:00:00:01,bridge=vmbr0,mtu=9000", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &settledVMs{
				bridges: []proxmoxapi.Bridge{{Name: "vmbr0", MTU: 1500}},
				current: map[string]string{"net0": c.net0, "cores": "0"},
			}
			s := New(checks.New(&plan.Plan{Pools: []plan.PlannedPool{{Name: "a", Nodes: []plan.Node{n}}}}, h))
			s.VMs = []proxmoxapi.VM{{ID: 401, Name: "a-1", Host: "pve"}}
			require.NoError(t, s.CheckStates(t.Context()))

			if c.want == "" {
				assert.Empty(t, s.Problems)
			} else {
				require.Len(t, s.Problems, 1)
				assert.Contains(t, s.Problems[0].String(), c.want)
			}
		})
	}
}

// TestPlacesOfExistingNodes: bridges and datastores that existing VMs are to get are looked for before a node is drained.
func TestPlacesOfExistingNodes(t *testing.T) {
	current := map[string]string{"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "scsi0": "local-lvm:vm-401-disk-0,size=40G"}
	for name, c := range map[string]struct {
		bridge    string
		datastore string // of another disk
		host      string // of the VM, where it was moved by hand
		want      string
	}{
		"a VM that was moved":           {bridge: "vmbr2", datastore: "fast", host: "pve2"},
		"as it is":                      {bridge: "vmbr0"},
		"a bridge that is there":        {bridge: "vmbr1"},
		"a bridge that is not there":    {bridge: "vmbr2", want: "pools.a.nics: bridge not found on host pve"},
		"a disk on a datastore":         {bridge: "vmbr0", datastore: "nfs"},
		"a disk on one that is missing": {bridge: "vmbr0", datastore: "fast", want: "pools.a.disk.datastore: "},
	} {
		t.Run(name, func(t *testing.T) {
			n := plan.Node{
				Name: "a-1", Host: "pve", Pool: "a", VMID: 401, NICs: []plan.Interface{{Bridge: c.bridge}},
				Disks: []plan.Disk{{Interface: "scsi0", Datastore: "local-lvm", SizeGiB: 40}},
			}
			if c.datastore != "" {
				n.Disks = append(n.Disks, plan.Disk{Interface: "scsi1", Datastore: c.datastore, SizeGiB: 100})
			}

			h := &settledVMs{bridges: []proxmoxapi.Bridge{{Name: "vmbr0"}, {Name: "vmbr1"}}, current: current}
			s := New(checks.New(&plan.Plan{Pools: []plan.PlannedPool{{Name: "a", Nodes: []plan.Node{n}}}}, h))
			s.VMs = []proxmoxapi.VM{{ID: 401, Name: "a-1", Host: cmp.Or(c.host, "pve")}}
			require.NoError(t, s.CheckStates(t.Context()))

			if c.want == "" {
				assert.Empty(t, s.Problems)
			} else {
				require.Len(t, s.Problems, 1)
				assert.Contains(t, s.Problems[0].String(), c.want)
			}
		})
	}
}
