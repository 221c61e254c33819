package vmupdate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// growingDisks is a Proxmox VE whose disks grow.
type growingDisks struct {
	proxmoxvm.Proxmox

	settings map[string]string
	grown    []string
	// fails: the task succeeds, and the configuration keeps its size.
	fails bool
	name  string
	// uuid is the VM's; empty: that of the state.
	uuid string
	// err is the answer to what its settings are.
	err error
}

func (v *growingDisks) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return proxmoxapi.VMConfig{UUID: cmp.Or(v.uuid, grownUUID)}, nil
}

const grownUUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"

func (v *growingDisks) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	return proxmoxapi.VM{ID: vmid, Host: "pve", Name: v.name}, true, nil
}

func (v *growingDisks) Settings(context.Context, proxmoxapi.VM) (proxmoxapi.Settings, error) {
	return proxmoxapi.Settings{Current: v.settings}, v.err
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

// updatesOf are the hooks of a plan whose state has the VM of a node.
func updatesOf(ctx *pulumi.Context, p *plan.Plan, proxmox proxmoxvm.Proxmox, n plan.Node) Hooks {
	identities := vmidentity.NewIdentities(ctx, p, proxmox, nil)
	identities.Record(vmidentity.Machine{VMID: n.VMID, Name: n.Name, UUID: grownUUID, Tags: vmidentity.OwnerTags(p)})

	return Hooks{
		Program: ctx, Plan: p, Proxmox: proxmox, Identities: identities, Progress: func(string) {}, Weights: &sync.Map{},
		CheckPermissions: func(*pulumi.ResourceHookArgs, []string) error { return nil },
	}
}

func TestGrowDisks(t *testing.T) {
	n := plan.Node{Name: "a", VMID: 401, Disks: []plan.Disk{
		{Interface: "scsi0", SizeGiB: 50},
		{Interface: "scsi1", SizeGiB: 10},
	}}
	p := &plan.Plan{Cluster: "c"}
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
		"another VM": {vm: growingDisks{name: "b"}, want: `VM 401 on host pve is "b", not a: its disks are not changed`},
		"another VM of our name": {
			vm:   growingDisks{name: "a", uuid: "110ec58a-a0f2-4ac4-8393-c866d813b8d1"},
			want: "disk scsi0 of VM 401 on host pve is not changed: VMID 401 is \"a\" on host pve (UUID 110ec58a-",
		},
		"not noted": {
			vm: growingDisks{name: "a", fails: true}, grown: []string{"scsi0"},
			want: "disk scsi0 of VM 401 on host pve was enlarged, but its configuration says 40 instead of 50 GiB. " +
				"Run " +
				"'qm disk rescan --vmid 401' there, " +
				"then 'pulumi up' again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.vm.settings = before()

			err := pulumi.RunErr(func(ctx *pulumi.Context) error {
				return updatesOf(ctx, p, &c.vm, n).GrowDisks(t.Context(), n)
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

// TestShrunkDisks: a disk that would become smaller is refused, in previews too; one that is larger than it has to be
// may stay so.
func TestShrunkDisks(t *testing.T) {
	n := plan.Node{Name: "a", Pool: "w", VMID: 401, Disks: []plan.Disk{
		{Interface: "scsi0", SizeGiB: 50},
		{Interface: "scsi1", SizeGiB: 10},
	}}

	const (
		again = "name the node in lifecycle.replace: its VM is recreated with a smaller one, and all data on its disks is lost"
		first = "  - pools.w.diskGiB: a disk does not shrink, and scsi0 of VM 401 on host pve (a) has 60 GiB (given: 50); " +
			"set at least 60; or " + again
		second = "  - pools.w.extraDisks: a disk does not shrink, and scsi1 of VM 401 on host pve (a) has 20 GiB (given: " +
			"10); set sizeGiB of the disk to at least 20; or " + again
	)

	for name, c := range map[string]struct {
		old    [2]int // as the state has them
		inputs bool   // the state has the sizes of the program only
		has    map[string]string
		vm     string
		err    error
		want   string
		fails  string // in updates
	}{
		"as they are": {old: [2]int{50, 10}, has: map[string]string{"scsi0": "tank:x,size=50G", "scsi1": "tank:y,size=10G"}},
		"larger":      {old: [2]int{40, 10}, has: map[string]string{"scsi0": "tank:x,size=40G", "scsi1": "tank:y,size=10G"}},
		"smaller": {
			old: [2]int{60, 20}, has: map[string]string{"scsi0": "tank:x,size=60G", "scsi1": "tank:y,size=20G"},
			want: "the configuration has 2 problems:\n" + first + "\n" + second,
		},
		"smaller than before, in the inputs": {
			old: [2]int{60, 10}, inputs: true, has: map[string]string{"scsi0": "tank:x,size=60G"},
			want: "the configuration has 1 problem:\n" + first,
		},
		"larger than in the state, smaller than it is": {
			old: [2]int{40, 10}, has: map[string]string{"scsi0": "tank:x,size=60G"},
			want: "the configuration has 1 problem:\n" + first,
		},
		"made larger by hand":       {old: [2]int{50, 10}, has: map[string]string{"scsi0": "tank:x,size=60G"}},
		"never as large as it said": {old: [2]int{60, 10}, has: map[string]string{"scsi0": "tank:x,size=10G"}},
		"of unknown size":           {old: [2]int{60, 10}, has: map[string]string{"scsi0": "tank:x"}},
		"another VM":                {old: [2]int{60, 10}, has: map[string]string{"scsi0": "tank:x,size=60G"}, vm: "b"},
		"not read":                  {old: [2]int{60, 10}, err: errors.New("no answer"), fails: "no answer"},
	} {
		for _, dry := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				var disks []resource.PropertyValue
				for i, size := range c.old {
					disks = append(disks, resource.NewProperty(resource.PropertyMap{
						"interface": resource.NewProperty(n.Disks[i].Interface), "size": resource.NewProperty(float64(size)),
					}))
				}

				state := resource.PropertyMap{"disks": resource.NewProperty(disks)}

				args := &pulumi.ResourceHookArgs{OldInputs: state}
				if !c.inputs {
					args.OldOutputs = state
				}

				err := pulumi.RunErr(func(ctx *pulumi.Context) error {
					proxmox := &growingDisks{name: cmp.Or(c.vm, "a"), settings: c.has, err: c.err}

					return updatesOf(ctx, &plan.Plan{Cluster: "c"}, proxmox, n).CheckDisksNotSmaller(t.Context(), n, args)
				}, pulumi.WithMocks("p", "s", noResources{}), func(i *pulumi.RunInfo) { i.DryRun = dry })

				want := c.want
				if !dry {
					want = cmp.Or(want, c.fails)
				}

				if want == "" {
					assert.NoError(t, err)
				} else {
					assert.ErrorContains(t, err, want)
				}
			})
		}
	}
}

// TestOnlinePermissions: what a hook changes is read if a privilege for it is missing, and refused before it is changed.
func TestOnlinePermissions(t *testing.T) {
	n := plan.Node{Name: "a", VMID: 401, CPUUnits: 200, Disks: []plan.Disk{{Interface: "scsi0", SizeGiB: 50}}}

	for name, c := range map[string]struct {
		lacks string
		want  string
	}{
		"all are held":                 {},
		"one for the disk is missing":  {lacks: "disks", want: "lacks disks of [disks]"},
		"one for the weight, as it is": {lacks: "cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &growingDisks{name: "a", settings: map[string]string{"scsi0": "tank:vm-401-disk-0,size=40G", "cpuunits": "200"}}

			err := pulumi.RunErr(func(ctx *pulumi.Context) error {
				u := updatesOf(ctx, &plan.Plan{Cluster: "c"}, v, n)
				u.Nodes = map[string]plan.Node{"a-vm": n}
				u.CheckPermissions = func(_ *pulumi.ResourceHookArgs, online []string) error {
					if c.lacks != "" && slices.Contains(online, c.lacks) {
						return fmt.Errorf("lacks %s of %v", c.lacks, online)
					}

					return nil
				}

				return u.ApplyOnline(t.Context(), &pulumi.ResourceHookArgs{Name: "a-vm"})
			}, pulumi.WithMocks("p", "s", noResources{}))

			if c.want == "" {
				assert.NoError(t, err)
				assert.Equal(t, []string{"scsi0"}, v.grown)
			} else {
				assert.ErrorContains(t, err, c.want)
				assert.Empty(t, v.grown)
			}
		})
	}
}
