package vmupdate

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// TestFirmwareKept: a VM keeps the firmware that its system was installed for.
func TestFirmwareKept(t *testing.T) {
	n := plan.Node{Name: "c-w-1", Pool: "w", VMID: 501, Firmware: "ovmf"}

	const refused = "pools.w.firmware: does not change for a VM that exists: c-w-1 was installed with seabios, and does " +
		"not boot with another firmware (given: ovmf); set firmware: seabios; or "

	bios := func(value string) resource.PropertyMap {
		if value == "" {
			return resource.PropertyMap{}
		}

		return resource.PropertyMap{"bios": resource.NewProperty(value)}
	}

	for name, c := range map[string]struct {
		inputs, outputs, now string
		bootstrap            spec.BootstrapMode
		want                 string
	}{
		"another": {"seabios", "seabios", "ovmf", "", refused + "name the node in lifecycle.replace: its VM is " +
			"recreated with ovmf, and all data on its disks is lost"},
		"a clone before": {"", "seabios", "ovmf", spec.BootstrapExternal, refused + "take the node out of its cluster and " +
			"its pool, run 'pulumi up', and put it back into the pool: all data on its disks is lost"},
		"the same":           {"ovmf", "ovmf", "ovmf", "", ""},
		"a clone":            {"", "seabios", "", "", ""},
		"nothing is known":   {"", "", "ovmf", "", ""},
		"as configured":      {"ovmf", "seabios", "ovmf", "", ""},
		"a clone by refresh": {"seabios", "seabios", "seabios", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			args := &pulumi.ResourceHookArgs{
				Name: "vm", OldInputs: bios(c.inputs), OldOutputs: bios(c.outputs), NewInputs: bios(c.now),
			}
			p := &plan.Plan{Bootstrap: c.bootstrap}

			if c.want == "" {
				require.NoError(t, CheckFirmwareKept(p, n, args))

				return
			}

			err := pulumi.RunErr(func(ctx *pulumi.Context) error {
				u := Hooks{
					Program: ctx, Plan: p, Nodes: map[string]plan.Node{"vm": n},
					CheckPermissions: func(*pulumi.ResourceHookArgs, []string) error { return nil },
				}

				return u.ApplyOnline(t.Context(), args)
			}, pulumi.WithMocks("p", "s", noResources{}), func(i *pulumi.RunInfo) { i.DryRun = true })
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.want)
		})
	}
}
