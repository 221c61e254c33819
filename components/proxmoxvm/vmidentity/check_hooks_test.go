package vmidentity

import (
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// TestRenamedPool: the VM of a node is that of another resource in the state, because its pool has another name now.
func TestRenamedPool(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", Distribution: "talos", NodeTimeout: time.Minute,
		Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 501, Name: "node-1"}}}},
	}
	v := proxmoxapi.VM{ID: 501, Name: "node-1", Host: "pve", Tags: OwnerTags(p)}
	config := proxmoxapi.VMConfig{UUID: "6c84fb90-12c4-11e1-840d-7b25c5ee775a"}
	m := stateMachine{Machine: Machine{VMID: 501, Name: "node-1", UUID: config.UUID, Tags: v.Tags}}
	values := resource.NewPropertyMapFromMap(map[string]any{
		"vmId": 501, "name": "node-1", "smbios": map[string]any{"uuid": config.UUID}, "tags": []any{"c", "talos"},
	})

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		with := func(state map[string]stateMachine) *Identities {
			i := NewIdentities(ctx, p, &fakeProxmox{machine: &v, config: config}, func(vmid int) (Found, bool) {
				return Found{VM: v, Config: config}, vmid == 501
			})
			i.reads, i.state = true, state
			i.once.Do(func() { close(i.read) })

			return i
		}
		created := &pulumi.ResourceHookArgs{Name: "c-workers-1-vm", NewInputs: values}
		deleted := &pulumi.ResourceHookArgs{Name: "c-worker-1-vm", OldInputs: values}

		assert.EqualError(t, with(map[string]stateMachine{"c-worker-1-vm": m}).Announce(t.Context(), created),
			"pools: VMID 501 is that of c-worker-1-vm in the state: a pool that is renamed keeps no nodes, because the names of "+
				"their resources have the name of the pool in them (given: c-workers-1-vm); give the pool its former name; or, to "+
				"replace its nodes, give the new pool other VMIDs and other names")
		assert.NoError(t, with(map[string]stateMachine{"c-workers-1-vm": m}).Announce(t.Context(), created), "it is replaced")
		assert.NoError(t, with(nil).Announce(t.Context(), created), "the state does not have it")

		other := m
		other.Tags = []string{"d", "talos"}
		elsewhere := with(map[string]stateMachine{"c-workers-1-vm": m, "d-worker-1-vm": other})
		assert.NoError(t, elsewhere.Announce(t.Context(), created), "another cluster has it on another Proxmox VE")
		assert.NoError(t, elsewhere.Check(t.Context(), &pulumi.ResourceHookArgs{Name: "c-workers-1-vm", OldInputs: values}))

		assert.NoError(t, with(map[string]stateMachine{"c-worker-1-vm": m}).Check(t.Context(), deleted))

		twice := with(map[string]stateMachine{"c-worker-1-vm": m, "c-workers-1-vm": m})
		assert.ErrorContains(t, twice.Check(t.Context(), deleted), "VM 501 is in the state twice, as c-worker-1-vm and "+
			"c-workers-1-vm, and is not deleted")

		_, err := twice.CheckDeletion(t.Context(), "c-worker-1-vm")
		assert.ErrorContains(t, err, "VM 501 is in the state twice")

		return nil
	}, pulumi.WithMocks("p", "s", noResources{})))
}
