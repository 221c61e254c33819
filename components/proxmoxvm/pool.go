package proxmoxvm

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/wait"
)

// RestorePool puts a VM back into its resource pool. The provider moves a VM where the configuration names another pool, and never
// reads which one the VM is in. It runs in previews, too.
func RestorePool(
	ctx context.Context, program *pulumi.Context, proxmox Proxmox, n plan.Node, args *pulumi.ResourceHookArgs, say wait.Say,
) error {
	if n.ResourcePool == "" || hookutil.String(args.OldInputs, "poolId") != n.ResourcePool {
		return nil
	}

	vms, err := proxmox.VMs(ctx)
	if err != nil {
		return err
	}

	at := slices.IndexFunc(vms, func(v proxmoxapi.VM) bool { return v.ID == n.VMID })
	if at < 0 || vms[at].Pool == n.ResourcePool {
		return nil
	}

	message := fmt.Sprintf("%s: VM %d goes back into resource pool %s", n.Name, n.VMID, n.ResourcePool)
	if program.DryRun() {
		return program.Log.Info(message, nil)
	}

	say(message)

	if err := proxmox.MoveToPool(ctx, vms[at], n.ResourcePool); err != nil {
		return fmt.Errorf("VM %d of %s is not in resource pool %s: %w", n.VMID, n.Name, n.ResourcePool, err)
	}

	return nil
}
