package proxmoxvm

import (
	"context"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// growingDisks is a Proxmox VE whose disks grow.
type growingDisks struct {
	Proxmox

	settings map[string]string
	grown    []string
	// fails: the task succeeds, and the configuration keeps its size.
	fails bool
	name  string
}

func (v *growingDisks) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve", Name: v.name}, true, nil
}

func (v *growingDisks) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	return proxmoxapi.Settings{Current: v.settings}, nil
}

func (v *growingDisks) Resize(_ context.Context, _ proxmoxapi.VM, disk string, _ int) error {
	v.grown = append(v.grown, disk)

	if !v.fails {
		v.settings[disk] = "tank:vm-401-disk-0,size=50G"
	}

	return nil
}

// noResources are the mocks of a program without resources.
type noResources struct{ pulumi.MockResourceMonitor }

func TestGrowDisks(t *testing.T) {
	n := plan.Node{Name: "a", VMID: 401, Disks: []plan.Disk{{Interface: "scsi0", SizeGiB: 50},
		{Interface: "scsi1", SizeGiB: 10}}}
	before := func() map[string]string {
		return map[string]string{"scsi0": "tank:vm-401-disk-0,size=40G", "scsi1": "tank:vm-401-disk-1,size=10G"}
	}

	for name, c := range map[string]struct {
		vm    growingDisks
		dry   bool
		grown []string
		want  string
	}{
		"one of two": {vm: growingDisks{name: "a"}, grown: []string{"scsi0"}},
		"a preview":  {vm: growingDisks{name: "a"}, dry: true},
		"another VM": {vm: growingDisks{name: "b"}, want: `VM 401 on host pve is "b", not a: its disks are left alone`},
		"not noted": {
			vm: growingDisks{name: "a", fails: true}, grown: []string{"scsi0"},
			want: "disk scsi0 of VM 401 on host pve was made larger, and its configuration says 40 in place of 50 GiB. Run " +
				"'qm disk rescan --vmid 401' there, " +
				"then 'pulumi up' again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.vm.settings = before()

			err := pulumi.RunErr(func(ctx *pulumi.Context) error {
				return GrowDisks(t.Context(), ctx, &c.vm, n, func(string) {})
			}, pulumi.WithMocks("p", "s", noResources{}), func(i *pulumi.RunInfo) { i.DryRun = c.dry })

			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}

			assert.Equal(t, c.grown, c.vm.grown)
		})
	}
}
