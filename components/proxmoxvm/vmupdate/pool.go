package vmupdate

import (
	"context"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// RestorePool puts a VM back into its resource pool. The provider moves a VM where the configuration names another
// pool, and never reads which one the VM is in.
func (u Hooks) RestorePool(ctx context.Context, n plan.Node, args *pulumi.ResourceHookArgs) error {
	lost, err := u.lostPool(ctx, n, args)
	if err != nil || lost == nil {
		return err
	}

	message := fmt.Sprintf("%s: VM %d goes back into resource pool %s", n.Name, n.VMID, n.ResourcePool)
	if u.Program.DryRun() {
		return u.Program.Log.Info(message, nil)
	}

	if err := u.Identities.CheckNow(ctx, n); err != nil {
		return fmt.Errorf("VM %d was not added to resource pool %s: %w", n.VMID, n.ResourcePool, err)
	}

	u.Progress(message)

	if err := u.Proxmox.MoveToPool(ctx, *lost, n.ResourcePool); err != nil {
		return fmt.Errorf("VM %d of %s is not in resource pool %s: %w", n.VMID, n.Name, n.ResourcePool, err)
	}

	return nil
}
