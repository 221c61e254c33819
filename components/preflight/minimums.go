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
		return nil // the plan refuses them
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
