package proxmoxvm

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/proxmoxvm/vmidentity"
)

// The engine replaces a VM only when one of its properties changes, and no property says "was replaced once": the state
// has it as vmidentity.ReplaceMark, with a value that nothing else sets.

// replaceOnce replaces the VM when replace becomes true. When it becomes false, the mark goes in an update that changes
// nothing on the machine.
func replaceOnce(v *vm.VirtualMachineArgs, replace bool) []pulumi.ResourceOption {
	if !replace {
		return nil
	}

	v.TimeoutClone = pulumi.Int(vmidentity.ReplacedTimeout)

	return []pulumi.ResourceOption{pulumi.ReplaceOnChanges([]string{vmidentity.ReplaceMark})}
}

// initError is the engine's own word for a resource that was made and could not be initialized (pulumi/pulumi:
// pkg/resource/deploy/step_generator.go, initErrorSpecialKey).
const initError = "#initerror"

// replaceIncomplete replaces an incomplete VM where the state, too, says that its creation failed: either alone means
// nothing.
func replaceIncomplete(incomplete bool) []pulumi.ResourceOption {
	if !incomplete {
		return nil
	}

	return []pulumi.ResourceOption{pulumi.ReplaceOnChanges([]string{initError})}
}

// recreated says that the update replaces the VM.
func (a *Args) recreated() bool { return a.Replace && !a.State.Replaced || a.Incomplete }

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
