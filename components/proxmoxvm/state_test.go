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

// TestReplaceIncomplete: a VM is replaced only when Proxmox VE shows that it is incomplete.
func TestReplaceIncomplete(t *testing.T) {
	assert.Len(t, replaceIncomplete(true), 1)
	assert.Empty(t, replaceIncomplete(false))
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
			"'qm destroy "+
			"401 --purge' there) and run "+
			"'pulumi up --refresh'")
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
}
