package preflight

import (
	"context"
	"slices"

	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/spec"
)

// checkApplyMode refuses new nodes while configurations only take effect with the next reboot: the update would make
// their VMs, and then fail. Which nodes of lifecycle.replace are still to be replaced is in the state.
func (c *checker) checkApplyMode(context.Context) error {
	if c.Plan.Distribution != spec.DistributionTalos || c.Plan.Apply != spec.ApplyStaged || c.Plan.Teardown {
		return nil
	}

	var names []string

	for _, n := range c.Plan.Nodes() {
		if c.Absent[n.VMID] || slices.Contains(c.Incomplete, n.Name) {
			names = append(names, n.Name)
		}
	}

	if len(names) > 0 {
		c.Problems = append(c.Problems, spec.StagedCannotConfigure(checks.UpTo(names, 3)))
	}

	return nil
}
