package vmidentity

import (
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/proxmoxapi"
)

// Machine is a VM as the state has it.
type Machine struct {
	VMID       int
	Name, UUID string
	Tags       []string
	// Disks are the positions of those that the state has.
	Disks []string
}

// Found is a VM as Proxmox VE has it.
type Found struct {
	VM     proxmoxapi.VM
	Config proxmoxapi.VMConfig
}

// machineOf reads a VM from its inputs: these have the UUID that the program chose, where outputs have what the
// provider found.
func machineOf(inputs resource.PropertyMap) Machine {
	m := Machine{
		VMID: int(hookutil.Number(inputs, "vmId")), Name: hookutil.String(inputs, "name"),
		Tags: hookutil.Strings(inputs, "tags"), Disks: DiskPositions(inputs),
	}

	// The provider has lost disks that it could not read: which ones the stack created is not known.
	if slices.Contains(m.Disks, "") {
		m.Disks = nil
	}

	if smbios := hookutil.Unwrap(inputs["smbios"]); smbios.IsObject() {
		m.UUID = hookutil.String(smbios.ObjectValue(), "uuid")
	}

	return m
}

// DiskPositions are those of the disks of a VM, as its inputs or its outputs have them.
func DiskPositions(values resource.PropertyMap) []string {
	var found []string
	for _, disk := range hookutil.Objects(values, "disks") {
		found = append(found, hookutil.String(disk, "interface"))
	}

	return found
}

// stateMachine is a VM as the state had it when the run began.
type stateMachine struct {
	Machine
	urn pulumi.URN
	// replaced says that it has the mark of a replacement.
	replaced bool
	// imported says that no update has registered it since it was imported.
	imported bool
	// setUp says that the state has what was set up on it: the configuration of Talos, or that K3s has joined.
	setUp bool
	// setUpOn is the UUID that the machine had then; empty: the state does not tell.
	setUpOn string
}
