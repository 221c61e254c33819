package vms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/components/preflight/checks"
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

	shared := sync.OnceValues(func() (map[string]bool, error) { return c.Proxmox.SharedStores(ctx) })

	// Only what keeps a node from its planned host has to be known.
	var (
		unknown []string
		why     error
	)

	// By host: the commands that empty drives, and the nodes that high availability cannot move.
	commands, bound := map[string][]string{}, map[string][]string{}

	for _, v := range c.VMs {
		_, n, planned := vmidentity.NodeByVMID(c.Plan, v.ID)
		if !planned || n.CDROM == "" || v.Name != n.Name || v.Container {
			continue
		}

		moves := c.Plan.Rebalance && v.Host != n.Host

		volume, err := c.localISO(ctx, v, n.CDROM, shared)

		switch {
		case errors.Is(err, proxmoxapi.ErrHostUnreachable):
			continue
		case checks.EndChecks(err) || err != nil && moves:
			return err
		case err != nil:
			unknown, why = append(unknown, n.Name), err

			continue
		case volume == "":
			continue
		}

		command := fmt.Sprintf("'qm set %d --%s none,media=cdrom'", v.ID, n.CDROM)

		if moves {
			c.Problems.Add("placement.rebalance",
				fmt.Sprintf("%s cannot move from host %s to %s: %s in drive %s is a file of host %s",
					n.Name, v.Host, n.Host, volume, n.CDROM, v.Host), "true",
				fmt.Sprintf("when Talos is installed on the node, run %s on host %s; or unset it", command, v.Host))

			continue
		}

		commands[v.Host] = append(commands[v.Host], command)

		if n.HAGroup != "" || n.HA != nil {
			bound[v.Host] = append(bound[v.Host], n.Name)
		}
	}

	if len(unknown) > 0 {
		c.Warnings.Add("cluster.bootstrap", fmt.Sprintf("could not determine whether an ISO file is in the drives of %s, "+
			"which would pin them to their hosts: %v", checks.UpTo(unknown, 3), why), string(spec.BootstrapExternal), "")
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

// localISO is the ISO file in a drive of a VM that its host alone has; empty: there is none.
func (c *Checker) localISO(ctx context.Context, v proxmoxapi.VM, drive string,
	shared func() (map[string]bool, error),
) (string, error) {
	config, err := c.Proxmox.Config(ctx, v)
	if err != nil {
		return "", err
	}

	volume := config.CDROMs[drive]

	datastore, _, file := strings.Cut(volume, ":iso/")
	if !file {
		return "", nil
	}

	stores, err := shared()
	if err != nil || stores[datastore] {
		return "", err
	}

	return volume, nil
}
