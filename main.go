// Command talos-proxmox is the Pulumi program: one stack is one Talos Linux Kubernetes cluster on Proxmox VE.
package main

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/stacks"
)

func main() {
	pulumi.Run(stacks.Program)
}
