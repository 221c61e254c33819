package vmimage

import (
	"fmt"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// WarnOnImageDrift warns of a node that was created from another image than the wanted one, and says what follows. The
// description of the VM, which was written when it was created, names its image.
func WarnOnImageDrift(ctx *pulumi.Context, n plan.Node, wanted, consequence string, machineVM *vm.VirtualMachine) {
	machineVM.Description.ApplyT(func(then *string) error {
		if then == nil || *then == "" {
			return nil
		}

		before := spec.HideSecrets(vmidentity.Description(*then))
		if before == wanted {
			return nil
		}

		return ctx.Log.Warn(fmt.Sprintf("%s is %q; the configuration now says %q. %s",
			n.Name, before, wanted, consequence), nil)
	})
}
