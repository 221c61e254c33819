package preflight

import (
	"context"
	"fmt"
	"strconv"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// checkMinimums refuses new control planes that are smaller than Talos asks for. The plan warns of all of them: those
// that run stay.
func (c *checker) checkMinimums(context.Context) error {
	if c.Plan.Distribution == spec.DistributionK3s {
		c.checkK3sMinimums()

		return nil
	}

	for _, n := range c.Plan.ControlPlanes() {
		if !c.Absent[n.VMID] {
			continue
		}

		check := func(key string, value, least int) {
			if value > 0 && value < least {
				c.Problems.Add("pools."+n.Pool+"."+key,
					fmt.Sprintf("must be at least %d for a new control plane: Talos requires it", least),
					strconv.Itoa(value),
					"raise it")
			}
		}

		check("cores", n.Cores, plan.LeastCores)
		check("memoryMiB", n.MemoryMiB, plan.LeastMemoryMiB)

		if len(n.Disks) > 0 {
			check("diskGiB", n.Disks[0].SizeGiB, plan.LeastDiskGiB)
		}
	}

	return nil
}

// checkK3sMinimums warns of new servers with less processors than K3s asks for, with which they run slowly. What memory
// it asks for, the plan requires.
func (c *checker) checkK3sMinimums() {
	for _, n := range c.Plan.ControlPlanes() {
		if c.Absent[n.VMID] && n.Cores > 0 && n.Cores < plan.LeastK3sServerCores {
			c.Warnings.Add("pools."+n.Pool+".cores",
				fmt.Sprintf("is below the minimum that K3s requires for a server, %d", plan.LeastK3sServerCores),
				strconv.Itoa(n.Cores), "raise it")
		}
	}
}
