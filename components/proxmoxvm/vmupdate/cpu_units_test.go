package vmupdate

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

// weighed is a Proxmox VE that takes weights.
type weighed struct {
	growingDisks

	set []int
}

func (v *weighed) SetCPUUnits(_ context.Context, _ proxmoxapi.VM, units int) error {
	v.set = append(v.set, units)

	return nil
}

func TestApplyCPUUnits(t *testing.T) {
	for name, c := range map[string]struct {
		stated int
		has    string
		uuid   string
		dry    bool
		set    []int
		want   string
	}{
		"not set":          {has: "1024"},
		"as configured":    {stated: 1024, has: "1024"},
		"the default":      {stated: 100},
		"another":          {stated: 100, has: "1024", set: []int{100}},
		"a preview":        {stated: 100, has: "1024", dry: true},
		"another VM there": {stated: 50, uuid: "110ec58a-a0f2-4ac4-8393-c866d813b8d1", want: "CPU weight of VM 401 on host pve"},
	} {
		t.Run(name, func(t *testing.T) {
			v := &weighed{growingDisks: growingDisks{
				name: "a", uuid: c.uuid, settings: map[string]string{"cpuunits": c.has},
			}}
			n := plan.Node{Name: "a", VMID: 401, CPUUnits: c.stated}

			err := pulumi.RunErr(func(ctx *pulumi.Context) error {
				return updatesOf(ctx, &plan.Plan{Cluster: "c"}, v, n).ApplyCPUUnits(t.Context(), n)
			}, pulumi.WithMocks("p", "s", noResources{}), func(i *pulumi.RunInfo) { i.DryRun = c.dry })

			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}

			assert.Equal(t, c.set, v.set)
		})
	}
}

// TestKeepCPUUnits: the provider has written its own weight with other processors.
func TestKeepCPUUnits(t *testing.T) {
	v := &weighed{growingDisks: growingDisks{name: "a", settings: map[string]string{"cpuunits": "200"}}}
	n := plan.Node{Name: "a", VMID: 401}

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		u := updatesOf(ctx, &plan.Plan{Cluster: "c"}, v, n)
		u.Nodes = map[string]plan.Node{"a-vm": n}

		cores := func(n int) resource.PropertyMap {
			return resource.NewPropertyMapFromMap(map[string]any{"cpu": map[string]any{"cores": n}})
		}
		require.NoError(t, u.noteCPUUnits(t.Context(), n, &pulumi.ResourceHookArgs{OldInputs: cores(1), NewInputs: cores(2)}))

		v.settings = map[string]string{"cpuunits": "100"}

		return u.KeepCPUUnits(t.Context(), &pulumi.ResourceHookArgs{Name: "a-vm"})
	}, pulumi.WithMocks("p", "s", noResources{})))
	assert.Equal(t, []int{200}, v.set)
}
