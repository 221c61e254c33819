package vms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// CheckISODrives warns of ISO files that this program leaves in the drives of VMs, because it does not learn when their
// nodes have installed: one on a datastore of a single host keeps the VM there.
func (c *Checker) CheckISODrives(ctx context.Context) error {
	if c.Plan.Bootstrap != spec.BootstrapExternal {
		return nil
	}

	var shared map[string]bool

	// By host: the commands that empty drives, and the nodes that high availability cannot move.
	commands, bound := map[string][]string{}, map[string][]string{}

	for _, v := range c.VMs {
		_, n, planned := vmidentity.NodeByVMID(c.Plan, v.ID)
		if !planned || n.CDROM == "" || v.Name != n.Name || v.Container {
			continue
		}

		config, err := c.Proxmox.Config(ctx, v)
		if errors.Is(err, proxmoxapi.ErrHostUnreachable) {
			continue
		} else if err != nil {
			return err
		}

		datastore, _, file := strings.Cut(config.CDROMs[n.CDROM], ":iso/")
		if !file {
			continue
		}

		if shared == nil {
			if shared, err = c.Proxmox.SharedStores(ctx); err != nil {
				return err
			}
		}

		if shared[datastore] {
			continue
		}

		command := fmt.Sprintf("'qm set %d --%s none,media=cdrom'", v.ID, n.CDROM)

		if c.Plan.Rebalance && v.Host != n.Host {
			c.Problems.Add("placement.rebalance",
				fmt.Sprintf("%s cannot move from host %s to %s: %s in drive %s is a file of host %s",
					n.Name, v.Host, n.Host, config.CDROMs[n.CDROM], n.CDROM, v.Host), "true",
				fmt.Sprintf("when Talos is installed on the node, run %s on host %s; or unset it", command, v.Host))

			continue
		}

		commands[v.Host] = append(commands[v.Host], command)

		if n.HAGroup != "" || n.HA != nil {
			bound[v.Host] = append(bound[v.Host], n.Name)
		}
	}

	for _, host := range slices.Sorted(maps.Keys(commands)) {
		rule := "leaves the ISO file in the drives of VMs on host " + host + ", which pins them to it: neither migration, " +
			"placement.rebalance nor high availability moves them"
		if len(bound[host]) > 0 {
			rule += "; high availability has no effect on " + strings.Join(bound[host], ", ") + " until then"
		}

		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "cluster.bootstrap", Rule: rule, Value: string(spec.BootstrapExternal),
			Remedy: "when Talos is installed on their nodes, run " + strings.Join(commands[host], ", ") + " on " +
				"that host",
		})
	}

	return nil
}
