package proxmoxvm

import (
	"errors"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// TestCheckMappingUnused: a mapping that a VM of others has stays.
func TestCheckMappingUnused(t *testing.T) {
	p := &plan.Plan{
		Cluster: "c", Distribution: spec.DistributionTalos, Pools: []plan.PlannedPool{{Nodes: []plan.Node{{VMID: 401}}}},
	}
	has := proxmoxapi.VMConfig{Devices: []proxmoxapi.Device{
		{Key: "hostpci0", Mapping: "other"}, {Key: "hostpci1", Mapping: "c-gpu"},
	}}

	for name, c := range map[string]struct {
		vm     proxmoxapi.VM
		config proxmoxapi.VMConfig
		unread error
		dryRun bool
		want   string
	}{
		"of its node":               {vm: proxmoxapi.VM{ID: 401, Host: "pve"}, config: has},
		"of a node that leaves":     {vm: proxmoxapi.VM{ID: 402, Host: "pve", Tags: []string{"c", "talos"}}, config: has},
		"of a VM without it":        {vm: proxmoxapi.VM{ID: 300, Host: "pve"}},
		"of a host without devices": {vm: proxmoxapi.VM{ID: 300, Host: "pve2"}, config: has},
		"of a VM of others": {
			vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve"}, config: has,
			want: "resource mapping c-gpu is to be changed or deleted, and VM 300 (app) on host pve has it, which is not in " +
				"this stack: that VM would not start without it. Run 'qm set 300 --delete hostpci1' on that host, or give that " +
				"VM another mapping, then run 'pulumi up' again",
		},
		"of a VM that cannot be read": {
			vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve"}, unread: proxmoxapi.ErrUnreachable,
			want: "resource mapping c-gpu is to be changed or deleted, and it is not known whether VM 300 (app) on host pve " +
				"has it: " +
				proxmoxapi.ErrUnreachable.Error(),
		},
		"of a VM whose host is lost": {
			vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve"}, unread: proxmoxapi.ErrHostUnreachable,
		},
		"previewed without Proxmox VE": {
			vm: proxmoxapi.VM{ID: 300, Name: "app", Host: "pve"}, unread: proxmoxapi.ErrUnreachable, dryRun: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &fakeMappings{
				vms: []proxmoxapi.VM{c.vm}, config: c.config, unreadable: c.unread,
				mappings: map[string][]proxmoxapi.Mapped{"c-gpu": {{Host: "pve", BDF: "0000:01:00.0"}}},
			}

			err := MappingHooks{
				Proxmox: store, Identities: vmidentity.NewIdentities(nil, p, store, nil), DryRun: c.dryRun,
				Progress: func(string) {},
			}.CheckUnused(t.Context(), &pulumi.ResourceHookArgs{OldInputs: inputs(map[string]any{"name": "c-gpu"}).NewInputs})
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}

// TestCheckMappingDeleted: a mapping that a proxy has kept from its deletion is deleted again, if it is the one of the
// state.
func TestCheckMappingDeleted(t *testing.T) {
	const remedy = "Run 'pvesh delete /cluster/mapping/pci/c-gpu' on a host, then run the same command again"

	left := map[string][]proxmoxapi.Mapped{"c-gpu": {{Host: "pve", BDF: "0000:01:00.0"}}}

	for name, c := range map[string]struct {
		store   fakeMappings
		deleted []string
		want    string
	}{
		"deleted": {store: fakeMappings{mappings: map[string][]proxmoxapi.Mapped{"other": {}}}},
		"left":    {store: fakeMappings{mappings: left}, deleted: []string{"c-gpu"}},
		"of another device": {
			store: fakeMappings{mappings: map[string][]proxmoxapi.Mapped{"c-gpu": {{Host: "pve", BDF: "0000:02:00.0"}}}},
			want: "resource mapping c-gpu is no longer in the state, and is still on Proxmox VE, with other devices than the " +
				"state had: [pve 0000:02:00.0]. If no VM uses it: " + remedy,
		},
		"used by a VM of others since": {
			store: fakeMappings{
				mappings: left, vms: []proxmoxapi.VM{{ID: 300, Name: "app", Host: "pve"}},
				config: proxmoxapi.VMConfig{Devices: []proxmoxapi.Device{{Key: "hostpci0", Mapping: "c-gpu"}}},
			},
			want: "resource mapping c-gpu is no longer in the state, and is not deleted again: resource mapping c-gpu is to be " +
				"changed or deleted, and VM 300 (app) on host pve has it, which is not in this stack: that VM would not start " +
				"without it. Run 'qm set 300 --delete hostpci0' on that host, or give that VM another mapping, then run 'pulumi " +
				"up' again",
		},
		"fails again": {
			store: fakeMappings{mappings: left, undeleted: errors.New("a page")}, deleted: []string{"c-gpu"},
			want: "resource mapping c-gpu is no longer in the state, and is still on Proxmox VE: a page. " + remedy,
		},
		"no answer": {
			store: fakeMappings{err: errors.New("reset")},
			want: "resource mapping c-gpu is no longer in the state, and it is not known whether it was deleted: reset. " +
				remedy,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := MappingHooks{
				Proxmox: &c.store, Identities: vmidentity.NewIdentities(nil, &plan.Plan{}, &c.store, nil),
				Progress: func(string) {},
			}.CheckDeleted(t.Context(),
				&pulumi.ResourceHookArgs{OldInputs: inputs(map[string]any{
					"name": "c-gpu", "maps": []any{map[string]any{"node": "pve", "path": "0000:01:00.0"}},
				}).NewInputs})
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}

			assert.Equal(t, c.deleted, c.store.deleted)
		})
	}
}
