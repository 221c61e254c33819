package vmupdate

import (
	"context"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

func (v *growingDisks) VMs(ctx context.Context) ([]proxmoxapi.VM, error) {
	vm, _, err := v.Find(ctx, 401)

	return []proxmoxapi.VM{vm}, err
}

func (v *growingDisks) MoveToPool(_ context.Context, _ proxmoxapi.VM, pool string) error {
	v.grown = append(v.grown, pool)

	return nil
}

func TestRestorePool(t *testing.T) {
	p, n := &plan.Plan{Cluster: "c"}, plan.Node{Name: "a", VMID: 401, ResourcePool: "talos"}
	args := &pulumi.ResourceHookArgs{OldInputs: resource.PropertyMap{"poolId": resource.NewProperty("talos")}}

	for name, c := range map[string]struct {
		vm    growingDisks
		dry   bool
		moved []string
		want  string
	}{
		"ours":      {vm: growingDisks{name: "a"}, moved: []string{"talos"}},
		"a preview": {vm: growingDisks{name: "a"}, dry: true},
		"another VM": {
			vm:   growingDisks{name: "a", uuid: "110ec58a-a0f2-4ac4-8393-c866d813b8d1"},
			want: `VM 401 was not added to resource pool talos: VMID 401 is "a" on host pve (UUID 110ec58a-`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := pulumi.RunErr(func(ctx *pulumi.Context) error {
				return updatesOf(ctx, p, &c.vm, n).RestorePool(t.Context(), n, args)
			}, pulumi.WithMocks("p", "s", noResources{}), func(i *pulumi.RunInfo) { i.DryRun = c.dry })

			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.want)
			}

			assert.Equal(t, c.moved, c.vm.grown)
		})
	}
}
