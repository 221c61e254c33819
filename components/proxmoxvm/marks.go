package proxmoxvm

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// A hook runs with an update, and a replacement with a change. The provider has no property that could say of a VM "was
// replaced once" or "its disks grow in this update", so two timeouts that mean nothing to the machine carry it in the
// state: timeoutClone (vmidentity.ReplaceMark) and timeoutMigrate (updateMark), with values that nothing else sets.

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
