package proxmoxvm

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// updateMark is the property whose change causes an update of a VM for what hooks do. Hooks run only in an update, and
// no property says "has disks to grow": a timeout that means nothing to the machine carries it in the state, with
// values that nothing else sets.
const updateMark = "timeoutMigrate"

// migrateTimeout is the provider's own, in seconds.
const migrateTimeout = 1800

// markUpdate causes an update of the VM if the mark is another one than that of the state; 0: none is caused.
func markUpdate(v *vm.VirtualMachineArgs, mark int) {
	if mark > 0 {
		v.TimeoutMigrate = pulumi.Int(migrateTimeout + mark)
	}
}
