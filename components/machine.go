package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/plan"
)

// machineInputs are what the component of a machine shows of it, whatever runs in it.
func machineInputs(n plan.Node) pulumi.Map {
	return pulumi.Map{
		"name": pulumi.String(n.Name), "pool": pulumi.String(n.Pool), "role": pulumi.String(n.Role),
		"vmid": pulumi.Int(n.VMID), "cores": pulumi.Int(n.Cores), "memoryMiB": pulumi.Int(n.MemoryMiB),
		"diskGiB": pulumi.Int(n.Disks[0].SizeGiB),
	}
}
