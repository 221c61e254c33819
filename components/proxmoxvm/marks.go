package proxmoxvm

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// Hooks run only in an update, and the engine replaces a VM only when one of its properties changes. No property says
// "was replaced once" or "has disks to grow", so two timeouts that mean nothing to the machine carry it in the state:
// timeoutClone (vmidentity.ReplaceMark) and timeoutMigrate (updateMark), with values that nothing else sets.

// updateMark is the property whose change causes an update of a VM for what hooks do.
const updateMark = "timeoutMigrate"

// migrateTimeout is the provider's own, in seconds.
const migrateTimeout = 1800

// replaceOnce replaces the VM when replace becomes true. When it becomes false, the mark goes in an update that changes
// nothing on the machine.
func replaceOnce(v *vm.VirtualMachineArgs, replace bool) []pulumi.ResourceOption {
	if !replace {
		return nil
	}

	v.TimeoutClone = pulumi.Int(vmidentity.ReplacedTimeout)

	return []pulumi.ResourceOption{pulumi.ReplaceOnChanges([]string{vmidentity.ReplaceMark})}
}

// markUpdate causes an update of the VM if the mark is another one than that of the state; 0: none is caused.
func markUpdate(v *vm.VirtualMachineArgs, mark int) {
	if mark > 0 {
		v.TimeoutMigrate = pulumi.Int(migrateTimeout + mark)
	}
}
