package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm"
)

// checkISODrives warns of ISO files that this program leaves in the drives of VMs, because it does not learn when their
// nodes have installed: one on a datastore of a single host keeps the VM there.
func (c *checks) checkISODrives(ctx context.Context) error {
	if c.plan.Bootstrap != plan.External {
		return nil
	}

	var shared map[string]bool

	left := map[string][]string{} // the commands, by host

	for _, v := range c.vms {
		_, n, planned := proxmoxvm.NodeByVMID(c.plan, v.ID)
		if !planned || n.CDROM == "" || v.Name != n.Name || v.Container {
			continue
		}

		config, err := c.proxmox.Config(ctx, v)
		if errors.Is(err, proxmoxapi.ErrHostSilent) {
			continue
		} else if err != nil {
			return err
		}

		datastore, _, file := strings.Cut(config.CDROMs[n.CDROM], ":iso/")
		if !file {
			continue
		}

		if shared == nil {
			if shared, err = c.proxmox.SharedStores(ctx); err != nil {
				return err
			}
		}

		if !shared[datastore] {
			left[v.Host] = append(left[v.Host], fmt.Sprintf("'qm set %d --%s none,media=cdrom'", v.ID, n.CDROM))
		}
	}

	for _, host := range slices.Sorted(maps.Keys(left)) {
		c.warnings = append(c.warnings, plan.Problem{
			Path: "cluster.bootstrap", Rule: "leaves the ISO file in the drives of VMs on host " + host +
				", which pins them to it: neither migration, " +
				"placement.rebalance nor high availability moves them",
			Value:  string(plan.External),
			Remedy: "when their nodes have installed, run " + strings.Join(left[host], ", ") + " on that host",
		})
	}

	return nil
}
