package rules

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func disks(of ...vm.VirtualMachineDiskInput) func(*vm.VirtualMachineArgs) {
	return func(a *vm.VirtualMachineArgs) { a.Disks = vm.VirtualMachineDiskArray(of) }
}

func onDatastore(name, discard string) vm.VirtualMachineDiskArgs {
	d := vm.VirtualMachineDiskArgs{Interface: pulumi.String("scsi0"), DatastoreId: pulumi.String(name)}
	if discard != "" {
		d.Discard = pulumi.String(discard)
	}

	return d
}

var diskCases = []ruleCase{
	{
		rule: "disk-discard", name: "discarding, thick, or as the template has it",
		program: all(
			machineOf("on", disks(onDatastore("local-lvm", "on"))),
			machineOf("thick", disks(onDatastore("local", "ignore"))),
			machineOf("clone", cloned, disks(onDatastore("local-lvm", "ignore"))),
		),
	},
	{
		rule: "disk-discard", name: "thin and not discarding",
		program: all(
			machineOf("clone", cloned, disks(onDatastore("local-lvm", "ignore"), onDatastore("ceph-ssd", ""))),
			machineOf("vm", disks(onDatastore("local-lvm", "ignore"))),
		),
		want: []string{
			"clone.disks[1].discard: must be on (given: on datastore ceph-ssd); set it to on",
			"vm.disks[0].discard: must be on (given: ignore on datastore local-lvm); set it to on",
		},
	},
	{
		rule: "disk-discard", name: "datastores of one's own", settings: `{"thinDatastores": ["tank"]}`,
		program: machineOf("vm", disks(onDatastore("tank", "ignore"), onDatastore("local-lvm", "ignore"))),
		want:    []string{"vm.disks[0].discard: must be on (given: ignore on datastore tank); set it to on"},
	},
}
