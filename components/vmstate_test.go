package components

import (
	"context"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// resizable is a Proxmox VE whose disks grow.
type resizable struct {
	running

	settings map[string]string
	waiting  map[string]string
	grown    []string
	// deaf: the task ends well, and the configuration keeps its size.
	deaf bool
	name string
}

func (v *resizable) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve", Name: v.name}, true, nil
}

func (v *resizable) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	return proxmoxapi.Settings{Current: v.settings, Pending: v.waiting}, nil
}

func (v *resizable) Process(context.Context, proxmoxapi.VM) (int, error) { return 4711, nil }

func (v *resizable) Resize(_ context.Context, _ proxmoxapi.VM, disk string, _ int) error {
	v.grown = append(v.grown, disk)

	if !v.deaf {
		v.settings[disk] = "tank:vm-401-disk-0,size=50G"
	}

	return nil
}

func TestGrow(t *testing.T) {
	n := plan.Node{Name: "a", VMID: 401, Disks: []plan.Disk{{Interface: "scsi0", SizeGiB: 50}, {Interface: "scsi1", SizeGiB: 10}}}
	before := func() map[string]string {
		return map[string]string{"scsi0": "tank:vm-401-disk-0,size=40G", "scsi1": "tank:vm-401-disk-1,size=10G"}
	}

	for name, c := range map[string]struct {
		vm    resizable
		dry   bool
		grown []string
		want  string
	}{
		"one of two":      {vm: resizable{name: "a"}, grown: []string{"scsi0"}},
		"a preview":       {vm: resizable{name: "a"}, dry: true},
		"another machine": {vm: resizable{name: "b"}, want: `VM 401 on host pve is "b", not a: its disks are left alone`},
		"not noted": {
			vm: resizable{name: "a", deaf: true}, grown: []string{"scsi0"},
			want: "disk scsi0 of VM 401 on host pve was made larger, and its configuration says 40 in place of 50 GiB. Run 'qm disk rescan --vmid 401' there, " +
				"then 'pulumi up' again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inProgram(t, c.dry, func(ctx *pulumi.Context) {
				c.vm.settings = before()
				r := restarting(ctx, nil, func(r *restarts) { r.proxmox = &c.vm })

				if err := r.grow(t.Context(), n); c.want == "" {
					assert.NoError(t, err)
				} else {
					assert.EqualError(t, err, c.want)
				}

				assert.Equal(t, c.grown, c.vm.grown)
			})
		})
	}
}
