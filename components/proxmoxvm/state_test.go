package proxmoxvm

import (
	"context"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// oneConfig is a Proxmox VE whose VMs have one configuration.
type oneConfig struct {
	Proxmox

	config proxmoxapi.VMConfig
}

func (oneConfig) Find(_ context.Context, id int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: id, Host: "a"}, id == 401, nil
}

func (s oneConfig) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return s.config, nil
}

// TestCheckComplete: what the state has of a VM must be there before it is changed, and before it is called finished.
func TestCheckComplete(t *testing.T) {
	args := func(disk map[string]any) *pulumi.ResourceHookArgs {
		return &pulumi.ResourceHookArgs{
			NewInputs:  resource.NewPropertyMapFromMap(map[string]any{"vmId": 401.0}),
			OldOutputs: resource.NewPropertyMapFromMap(map[string]any{"disks": []any{disk}}),
		}
	}
	disk := func(size float64) map[string]any { return map[string]any{"interface": "scsi0", "size": size} }

	complete := oneConfig{config: proxmoxapi.VMConfig{Disks: map[string]int{"scsi0": 40}}}
	replaced := &plan.Plan{
		Pools:   []plan.PlannedPool{{Nodes: []plan.Node{{Name: "c-control-1", VMID: 401}}}},
		Replace: []string{"c-control-1"},
	}

	assert.NoError(t, CheckComplete(t.Context(), &plan.Plan{}, complete, args(disk(40))))
	assert.NoError(t, CheckComplete(t.Context(), &plan.Plan{}, complete, args(disk(10))), "it was made larger by hand")
	assert.EqualError(t, CheckComplete(t.Context(), &plan.Plan{}, complete, args(disk(50))),
		"VM 401 on host a is not finished: disk scsi0 has 40 GiB instead of 50, because an earlier run failed. "+
			"Run 'pulumi up --refresh', which detects this")
	assert.EqualError(t, CheckComplete(t.Context(), &plan.Plan{}, complete,
		args(map[string]any{"interface": nil, "size": nil})),
		"VM 401 on host a is not finished: the state does not know its disks, because they could not be read when "+
			"the VM was created or changed. "+
			"Replace the node (lifecycle.replace); or, if it was never configured, delete its VM ('qm stop 401', "+
			"'qm destroy 401 --purge' there) and run 'pulumi up --refresh'")
	assert.ErrorContains(t, CheckComplete(t.Context(), replaced, complete,
		args(map[string]any{"interface": nil, "size": nil})),
		"The node is in lifecycle.replace already: remove it from its pool, run 'pulumi up', and add it again; or, if it "+
			"was never configured, delete its VM ('qm stop 401',")
}

// TestCheckApplied: an update that failed leaves its outputs in the state, with the inputs of before. What of it
// Proxmox VE does not have would never come there.
func TestCheckApplied(t *testing.T) {
	machine := func(memory, cores, vlan float64) resource.PropertyMap {
		return resource.NewPropertyMapFromMap(map[string]any{
			"vmId": 401.0, "memory": map[string]any{"dedicated": memory}, "cpu": map[string]any{"cores": cores, "type": "host"},
			"networkDevices": []any{map[string]any{"bridge": "vmbr0", "vlanId": vlan}},
		})
	}
	vm := oneConfig{config: proxmoxapi.VMConfig{Settings: map[string]string{
		"memory": "current=4096", "cores": "2",
		"cpu": "host", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=5",
	}}}

	look := func(before, state resource.PropertyMap) error {
		return CheckComplete(t.Context(), &plan.Plan{}, vm, &pulumi.ResourceHookArgs{
			NewInputs: machine(4096, 2, 5),
			OldInputs: before, OldOutputs: state,
		})
	}

	const remedy = ", because an earlier update failed. Run 'pulumi up --refresh', which detects this"

	require.NoError(t, look(machine(4096, 2, 5), machine(4096, 2, 5)))
	require.NoError(t, look(machine(2048, 1, 4), machine(4096, 2, 5)), "all of it was written")
	require.NoError(t, look(machine(8192, 2, 5), machine(8192, 2, 5)), "it was changed by hand: a refresh finds that")
	require.EqualError(t, look(machine(4096, 2, 5), machine(8192, 2, 5)),
		`VM 401 on host a is not as the state says: memory is "4096" instead of "8192"`+remedy)
	require.EqualError(t, look(machine(4096, 2, 5), machine(4096, 2, 7)),
		`VM 401 on host a is not as the state says: net0 tag is "5" instead of "7"`+remedy)
	require.EqualError(t, look(machine(4096, 2, 0), machine(4096, 2, 7)),
		`VM 401 on host a is not as the state says: net0 tag is "5" instead of "7"`+remedy)
}

// TestSerialConsoleStays: of a clone, the provider reads no serial console that the state does not have.
func TestSerialConsoleStays(t *testing.T) {
	with := resource.NewPropertyMapFromMap(map[string]any{
		"vmId": 401.0, "serialDevices": []any{map[string]any{"device": "socket"}},
	})
	without := resource.NewPropertyMapFromMap(map[string]any{"vmId": 401.0})
	args := &pulumi.ResourceHookArgs{NewInputs: without, OldInputs: with, OldOutputs: without}

	vm := oneConfig{config: proxmoxapi.VMConfig{Settings: map[string]string{"serial0": "socket"}}}
	require.EqualError(t, CheckComplete(t.Context(), &plan.Plan{}, vm, args),
		"VM 401 on host a still has serial0, because an earlier update failed. Run 'qm set 401 --delete serial0' there, "+
			"then 'pulumi up' again")
	require.NoError(t, CheckComplete(t.Context(), &plan.Plan{}, oneConfig{}, args))
}

// TestCheckAppliedParts: each setting that the program changes is compared, also one that is new, or was removed.
func TestCheckAppliedParts(t *testing.T) {
	disk := func(options map[string]any) map[string]any {
		options["interface"] = "scsi1"

		return map[string]any{"disks": []any{options}}
	}
	nics := func(devices ...any) map[string]any { return map[string]any{"networkDevices": devices} }
	gpu := func(mapping string) map[string]any {
		return map[string]any{"hostpcis": []any{map[string]any{"device": "hostpci0", "mapping": mapping}}}
	}
	first := map[string]any{"bridge": "vmbr0"}

	for name, c := range map[string]struct {
		before, after map[string]any
		// has are the settings of the VM with the change, lacks without it, which may be none.
		has, lacks map[string]string
		is         string
	}{
		"a first VLAN": {
			nics(first), nics(map[string]any{"bridge": "vmbr0", "vlanId": 7.0}),
			map[string]string{"net0": "virtio=A,bridge=vmbr0,tag=7"},
			map[string]string{"net0": "virtio=A,bridge=vmbr0"},
			`net0 tag is "0" instead of "7"`,
		},
		"no VLAN any more": {
			nics(map[string]any{"bridge": "vmbr0", "vlanId": 7.0}), nics(map[string]any{"bridge": "vmbr0", "vlanId": 0.0}),
			map[string]string{"net0": "virtio=A,bridge=vmbr0"},
			map[string]string{"net0": "virtio=A,bridge=vmbr0,tag=7"},
			`net0 tag is "7" instead of "0"`,
		},
		"another NIC": {
			nics(first), nics(first, first),
			map[string]string{"net0": "bridge=vmbr0", "net1": "bridge=vmbr0"},
			map[string]string{"net0": "bridge=vmbr0"},
			`net1 bridge is "" instead of "vmbr0"`,
		},
		"one NIC less": {
			nics(first, first), nics(first),
			map[string]string{"net0": "bridge=vmbr0"},
			map[string]string{"net0": "bridge=vmbr0", "net1": "bridge=vmbr0"},
			`net1 bridge is "vmbr0" instead of ""`,
		},
		"MTU": {
			nics(first), nics(map[string]any{"bridge": "vmbr0", "mtu": 9000.0}),
			map[string]string{"net0": "bridge=vmbr0,mtu=9000"},
			map[string]string{"net0": "bridge=vmbr0"},
			`net0 mtu is "0" instead of "9000"`,
		},
		"the firewall of a NIC": {
			nics(first), nics(map[string]any{"bridge": "vmbr0", "firewall": true}),
			map[string]string{"net0": "bridge=vmbr0,firewall=1"},
			map[string]string{"net0": "bridge=vmbr0"},
			`net0 firewall is "0" instead of "1"`,
		},
		"startup": {
			map[string]any{},
			map[string]any{"startup": map[string]any{"order": 2.0, "upDelay": 30.0, "downDelay": -1.0}},
			map[string]string{"startup": "order=2,up=30"},
			nil, `startup order is "" instead of "2"`,
		},
		"NUMA": {
			map[string]any{"cpu": map[string]any{"numa": false}},
			map[string]any{"cpu": map[string]any{"numa": true}},
			map[string]string{"numa": "1"},
			nil, `numa is "0" instead of "1"`,
		},
		"the agent": {
			map[string]any{"agent": map[string]any{"enabled": false}},
			map[string]any{"agent": map[string]any{"enabled": true}},
			map[string]string{"agent": "enabled=1,type=virtio"},
			map[string]string{"agent": "0"},
			`agent is "0" instead of "1"`,
		},
		"a GPU": {
			map[string]any{},
			gpu("a"),
			map[string]string{"hostpci0": "mapping=a,pcie=1"},
			nil,
			`hostpci0 mapping is "" instead of "a"`,
		},
		"a GPU without its ROM": {
			map[string]any{"hostpcis": []any{map[string]any{"mapping": "a", "rombar": true}}},
			map[string]any{"hostpcis": []any{map[string]any{"mapping": "a", "rombar": false}}},
			map[string]string{"hostpci0": "mapping=a,rombar=0"},
			map[string]string{"hostpci0": "mapping=a"},
			`hostpci0 rombar is "1" instead of "0"`,
		},
		"a serial console": {
			map[string]any{},
			map[string]any{"serialDevices": []any{map[string]any{"device": "socket"}}},
			map[string]string{"serial0": "socket"},
			nil,
			`serial0 is "" instead of "socket"`,
		},
		"a SCSI controller": {
			map[string]any{"scsiHardware": "virtio-scsi-pci"},
			map[string]any{"scsiHardware": "virtio-scsi-single"},
			map[string]string{"scsihw": "virtio-scsi-single"},
			map[string]string{"scsihw": "virtio-scsi-pci"},
			`scsihw is "virtio-scsi-pci" instead of "virtio-scsi-single"`,
		},
		"another GPU": {
			gpu("b"), gpu("a"),
			map[string]string{"hostpci0": "mapping=a"},
			map[string]string{"hostpci0": "mapping=b"},
			`hostpci0 mapping is "b" instead of "a"`,
		},
		"the cache of a disk": {
			disk(map[string]any{"cache": "none"}), disk(map[string]any{"cache": "writeback"}),
			map[string]string{"scsi1": "local:vm-401-disk-1,cache=writeback"},
			map[string]string{"scsi1": "local:vm-401-disk-1"},
			`scsi1 cache is "none" instead of "writeback"`,
		},
		"the backup of a disk": {
			disk(map[string]any{"backup": true}), disk(map[string]any{"backup": false}),
			map[string]string{"scsi1": "local:vm-401-disk-1,backup=0"},
			map[string]string{"scsi1": "local:vm-401-disk-1"},
			`scsi1 backup is "1" instead of "0"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			look := func(settings map[string]string) error {
				config := proxmoxapi.VMConfig{Settings: settings, Disks: map[string]int{"scsi1": 0}}
				args := &pulumi.ResourceHookArgs{
					NewInputs: resource.NewPropertyMapFromMap(map[string]any{"vmId": 401.0}),
					OldInputs: resource.NewPropertyMapFromMap(c.before), OldOutputs: resource.NewPropertyMapFromMap(c.after),
				}

				return CheckComplete(t.Context(), &plan.Plan{}, oneConfig{config: config}, args)
			}

			require.NoError(t, look(c.has))
			require.ErrorContains(t, look(c.lacks), "is not as the state says: "+c.is)
		})
	}

	added := &pulumi.ResourceHookArgs{
		NewInputs: resource.NewPropertyMapFromMap(map[string]any{"vmId": 401.0}),
		OldOutputs: resource.NewPropertyMapFromMap(disk(map[string]any{
			"datastoreId": "local-lvm", "size": 10.0, "aio": "io_uring", "backup": true, "cache": "none", "discard": "on",
			"iothread": false, "replicate": false, "ssd": false,
		})),
	}
	require.EqualError(t, CheckComplete(t.Context(), &plan.Plan{}, oneConfig{}, added), "VM 401 on host a does not have disk "+
		"scsi1, which the state has, because an earlier update failed. Create it there with 'qm set 401 --scsi1 "+
		"local-lvm:10,aio=io_uring,backup=1,cache=none,discard=on,replicate=0,iothread=0,ssd=0', then run 'pulumi up' "+
		"again, without --refresh")
}
