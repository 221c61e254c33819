package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checkGPUInUse finds other VMs that have the GPU of a node that is yet to be made. While one of them runs, the node's
// does not start.
func (c *checks) checkGPUInUse(ctx context.Context) error {
	newNodes := map[string][]plan.Node{}

	for _, n := range c.plan.Nodes() {
		if _, there := c.report.devices[n.Name]; there && c.absent[n.VMID] {
			newNodes[n.Host] = append(newNodes[n.Host], n)
		}
	}

	if len(newNodes) == 0 {
		return nil
	}

	mappings, err := c.proxmox.Mappings(ctx)
	if err != nil {
		return err
	}

	for _, v := range c.vms {
		if len(newNodes[v.Host]) == 0 || v.Container || v.Template {
			continue
		}

		config, err := c.proxmox.Config(ctx, v)
		if err != nil {
			return err
		}

		for _, n := range newNodes[v.Host] {
			if usesDevice(config.Devices, c.report.devices[n.Name].BDF, v.Host, mappings) {
				c.reportGPUInUse(n, v)
			}
		}
	}

	return nil
}

func (c *checks) reportGPUInUse(n plan.Node, v proxmoxapi.VM) {
	if !v.Stopped {
		c.problems.Add(bdfPath(n), fmt.Sprintf("is in use by %s (VMID %d) on host %s", v.Label(), v.ID, v.Host), n.GPU.BDF,
			"take it from that VM, or name another GPU")

		return
	}

	c.warnings = append(c.warnings, spec.Problem{
		Path: bdfPath(n), Rule: fmt.Sprintf("belongs to %s (VMID %d) on host %s too, which cannot be started any more",
			v.Label(), v.ID, v.Host), Value: n.GPU.BDF,
		Remedy: "take it from that VM, or name another GPU",
	})
}

// usesDevice says whether one of the devices of a VM is, or belongs to, a device of its host.
func usesDevice(devices []proxmoxapi.Device, bdf, host string, mappings map[string][]proxmoxapi.Mapped) bool {
	slot, _, _ := strings.Cut(bdf, ".")
	same := func(other string) bool {
		// Proxmox VE takes an address without its domain.
		other = strings.TrimPrefix(other, "0000:")
		other, _, _ = strings.Cut(other, ".")

		return other == strings.TrimPrefix(slot, "0000:")
	}

	return slices.ContainsFunc(devices, func(d proxmoxapi.Device) bool {
		return slices.ContainsFunc(d.BDFs, same) ||
			slices.ContainsFunc(mappings[d.Mapping], func(m proxmoxapi.Mapped) bool { return m.Host == host && same(m.BDF) })
	})
}

func bdfPath(n plan.Node) string { return fmt.Sprintf("pools.%s.gpus.%d.bdf", n.Pool, n.Ordinal) }
