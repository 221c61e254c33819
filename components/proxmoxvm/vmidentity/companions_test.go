package vmidentity

import (
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// TestCheckCompanion: what belongs to a VM that the program does not know any more goes only where the VM is the one of
// the state. A newer copy of the state may have replaced it.
func TestCheckCompanion(t *testing.T) {
	const ours, others = "6c84fb90-12c4-11e1-840d-7b25c5ee775a", "110ec58a-a0f2-4ac4-8393-c866d813b8d1"

	p := &plan.Plan{Cluster: "edge", Distribution: "k3s", NodeTimeout: time.Millisecond}
	state := map[string]stateMachine{"edge-agent-2-vm": {
		Machine: Machine{VMID: 502, Name: "edge-agent-2", UUID: ours, Tags: OwnerTags(p)}, urn: "urn",
	}}

	for name, c := range map[string]struct {
		uuid   string
		tags   []string
		state  map[string]stateMachine
		unread bool
		want   string
	}{
		"the VM of the state": {uuid: ours, tags: OwnerTags(p), state: state},
		"a VM that has replaced it": {
			uuid: others, tags: OwnerTags(p), state: state,
			want: `VMID 502 is "edge-agent-2" on host pve (UUID ` + others + `), and the state has edge-agent-2 there (UUID ` +
				ours + `). It is not touched.`,
		},
		"a VM that the state has no more": {uuid: others, tags: OwnerTags(p), state: map[string]stateMachine{}},
		"another VM that the state has no more": {
			uuid: others, state: map[string]stateMachine{},
			want: `VMID 502 is "edge-agent-2" on host pve, without the tags edge and k3s of this cluster`,
		},
		"a state that is not known": {
			uuid: ours, tags: OwnerTags(p), unread: true,
			want: "so nothing is done to it: could not determine which VM the state has: the state was not read " +
				"within 1ms; run " +
				"the command again once its host answers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				i := NewIdentities(ctx, p, &fakeProxmox{
					machine: &proxmoxapi.VM{ID: 502, Name: "edge-agent-2", Host: "pve", Tags: c.tags},
					config:  proxmoxapi.VMConfig{UUID: c.uuid},
				}, nil)
				i.reads, i.state = true, c.state

				if !c.unread {
					close(i.read)
				}

				err := i.CheckCompanion(t.Context(), &pulumi.ResourceHookArgs{
					Name: "edge-agent-2-firewall", OldInputs: resource.NewPropertyMapFromMap(map[string]any{"vmId": 502}),
				})
				if c.want == "" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.want)
				}

				return nil
			}, pulumi.WithMocks("p", "s", noResources{})))
		})
	}
}

// disks are the settings of a VM with them.
func disks(settings map[string]string) proxmoxapi.VMConfig {
	c := proxmoxapi.VMConfig{Disks: map[string]int{}, Settings: settings}
	for at := range settings {
		c.Disks[at] = 8
	}

	return c
}

// TestNotDeletable: what an operator has protected or detached is not deleted with a VM of ours, and the node is not
// taken down first.
func TestNotDeletable(t *testing.T) {
	const uuid = "0b6a2b1e-0000-4000-8000-000000000001"

	p := &plan.Plan{Cluster: "edge", Distribution: "talos", NodeTimeout: time.Minute}
	old := resource.NewPropertyMapFromMap(map[string]any{
		"vmId": 502, "name": "edge-1", "smbios": map[string]any{"uuid": uuid}, "tags": []any{"edge", "talos"},
		"disks": []any{map[string]any{"interface": "scsi0"}},
	})

	for name, c := range map[string]struct {
		config          proxmoxapi.VMConfig
		want            string
		setUp, imported bool
	}{
		"nothing":   {config: proxmoxapi.VMConfig{Settings: map[string]string{"scsi0": "local:vm-502-disk-0"}}},
		"protected": {config: proxmoxapi.VMConfig{Protection: true}, want: "run 'qm set 502 --protection 0' on host pve"},
		"detached": {
			config: proxmoxapi.VMConfig{
				Disks:    map[string]int{"scsi0": 8},
				Settings: map[string]string{"scsi0": "local:vm-502-disk-0", "unused0": "local:vm-502-disk-1"},
			},
			want: "edge-1 has a detached disk (unused0: local:vm-502-disk-1), which would be deleted with the VM",
		},
		"whose image was imported and not attached": {
			config: proxmoxapi.VMConfig{Settings: map[string]string{"unused0": "local:vm-502-disk-0"}},
		},
		"whose only disk was detached": {
			config: proxmoxapi.VMConfig{Settings: map[string]string{"unused0": "local:vm-502-disk-0"}}, setUp: true,
			want: "edge-1 has a detached disk (unused0: local:vm-502-disk-0), which would be deleted with the VM",
		},
		"whose only disk was detached after an import": {
			config: proxmoxapi.VMConfig{Settings: map[string]string{"unused0": "local:vm-502-disk-0"}}, imported: true,
			want: "edge-1 has a detached disk (unused0: local:vm-502-disk-0), which would be deleted with the VM",
		},
		"attached by hand": {
			config: disks(map[string]string{"scsi0": "local:502/vm-502-disk-0.raw", "scsi1": "local:base-9-disk-0/vm-502-disk-1,size=2T"}),
			want: "edge-1 has a disk that the stack did not create (scsi1: local:base-9-disk-0/vm-502-disk-1,size=2T), which would " +
				"be deleted with the VM. Nothing is done: on host pve, detach it ('qm set 502 --delete scsi1'), then give",
		},
		"not deleted with the VM": {config: disks(map[string]string{
			"scsi1": "local:vm-9999-pvc-1", "scsi2": "/dev/disk/by-id/vm-502-x", "scsi3": "local:9999/vm-9999-pvc-2.raw",
		})},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.UUID = uuid

			require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
				i := NewIdentities(ctx, p, &fakeProxmox{
					machine: &proxmoxapi.VM{ID: 502, Name: "edge-1", Host: "pve", Tags: OwnerTags(p)}, config: c.config,
				}, nil)
				i.state = map[string]stateMachine{"edge-1-vm": {Machine: machineOf(old), setUp: c.setUp, imported: c.imported}}
				i.shown[502] = true
				close(i.read)

				require.NoError(t, i.Check(t.Context(), &pulumi.ResourceHookArgs{OldInputs: old, NewInputs: old}))

				// A state that has lost the disks, which the provider could not read, keeps no node from its replacement.
				lost := old.Copy()
				lost["disks"] = resource.NewPropertyValue([]any{map[string]any{"interface": ""}})
				require.Empty(t, machineOf(lost).Disks)

				_, leaving := i.CheckDeletion(t.Context(), "edge-1-vm")
				for _, err := range []error{leaving, i.Check(t.Context(), &pulumi.ResourceHookArgs{OldInputs: old})} {
					if c.want == "" {
						require.NoError(t, err)
					} else {
						require.ErrorContains(t, err, c.want)
					}
				}

				return nil
			}, pulumi.WithMocks("p", "s", noResources{})))
		})
	}
}

// TestDeleteOfMovedVM: the provider looks for a VM on the host of the state, and high availability may have moved it.
func TestDeleteOfMovedVM(t *testing.T) {
	const uuid = "0b6a2b1e-0000-4000-8000-000000000001"

	p := &plan.Plan{Cluster: "edge", Distribution: "k3s", NodeTimeout: time.Millisecond}
	old := resource.NewPropertyMapFromMap(map[string]any{
		"vmId": 502, "name": "moved", "smbios": map[string]any{"uuid": uuid},
		"tags": []any{"edge", "k3s"},
	})

	for host, want := range map[string]string{
		"pve": "",
		"pve2": "VM 502 (moved) is on host pve, but the state has it on pve2: it was migrated since. It is not " +
			"deleted: run " +
			"the same command again with --refresh",
	} {
		require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
			i := NewIdentities(ctx, p, &fakeProxmox{
				machine: &proxmoxapi.VM{ID: 502, Name: "moved", Host: "pve", Tags: OwnerTags(p)},
				config:  proxmoxapi.VMConfig{UUID: uuid},
			}, nil)

			err := i.Check(t.Context(), &pulumi.ResourceHookArgs{
				OldInputs: old, OldOutputs: resource.NewPropertyMapFromMap(map[string]any{"nodeName": host}),
			})
			if want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, want)
			}

			return nil
		}, pulumi.WithMocks("p", "s", noResources{})))
	}
}
