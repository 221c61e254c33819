package hosts

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/spec"
)

// checkGPUInUse finds other VMs that have the GPU of a node that is yet to be made, or gets another one. While one of
// them runs, the node's does not start.
func (c Checker) checkGPUInUse(ctx context.Context) error {
	if !slices.ContainsFunc(c.Plan.Nodes(), func(n plan.Node) bool { return n.GPU != nil }) {
		return nil
	}

	mappings, err := c.Proxmox.Mappings(ctx)
	if err != nil {
		return err
	}

	changed := map[string][]plan.Node{}

	for _, n := range c.Plan.Nodes() {
		switch _, known := c.Devices[n.Name]; {
		case n.GPU == nil:
		case c.changesHostOfGPU(n, mappings):
		case known && (c.Absent[n.VMID] || c.changesGPU(n, mappings)):
			changed[n.Host] = append(changed[n.Host], n)
		}
	}

	for _, v := range c.VMs {
		if len(changed[v.Host]) == 0 || v.Container || v.Template {
			continue
		}

		config, err := c.Proxmox.Config(ctx, v)
		if err != nil {
			return err
		}

		for _, n := range changed[v.Host] {
			if v.ID != n.VMID && usesDevice(config.Devices, c.Devices[n.Name].BDF, v.Host, mappings) {
				c.reportGPUInUse(n, v)
			}
		}
	}

	return nil
}

// changesHostOfGPU refuses to give a VM the GPU of another host than its own: only the resource mapping would change,
// and the VM would not start any more. Where the mapping names the planned host already, an operator has migrated the
// VM, and nothing changes.
func (c Checker) changesHostOfGPU(n plan.Node, mappings map[string][]proxmoxapi.Mapped) bool {
	at := slices.IndexFunc(c.VMs, func(v proxmoxapi.VM) bool {
		return v.ID == n.VMID && (v.Name == n.Name || vmidentity.OfCluster(v, c.Plan))
	})

	if at < 0 || c.VMs[at].Host == n.Host || c.Recreates(n) || !c.changesGPU(n, mappings) {
		return false
	}

	v := c.VMs[at]
	remedy := "name the node in lifecycle.replace: its VM is recreated on host " + n.Host
	if c.Plan.Bootstrap == spec.BootstrapExternal {
		remedy = "take the node out of its cluster and its pool, run 'pulumi up', and put it back into the pool"
	}

	c.Problems.Add(fmt.Sprintf("pools.%s.gpus.%d.host", n.Pool, n.Ordinal),
		fmt.Sprintf("does not change for a VM that exists: %s (VMID %d) is on host %s, and does not start with a GPU of "+
			"another host", n.Name, v.ID, v.Host), n.Host,
		fmt.Sprintf("set host to %s, with a GPU of that host; or %s", v.Host, remedy))

	return true
}

// changesGPU says that the VM of a node that exists is known to have another GPU than the planned one, or none.
func (c Checker) changesGPU(n plan.Node, mappings map[string][]proxmoxapi.Mapped) bool {
	found, known := c.Identified[n.VMID]
	devices := found.Config.Devices

	if !known { // Its host does not answer. Its mapping is one of those there are.
		for name := range mappings {
			devices = append(devices, proxmoxapi.Device{Mapping: name})
		}
	}

	hidden := slices.ContainsFunc(devices, func(d proxmoxapi.Device) bool {
		return d.Mapping != "" && mappings[d.Mapping] == nil
	})

	return !hidden && !usesDevice(devices, n.GPU.BDF, n.Host, mappings)
}

func (c Checker) reportGPUInUse(n plan.Node, v proxmoxapi.VM) {
	if !v.Stopped {
		c.Problems.Add(bdfPath(n), fmt.Sprintf("is in use by %s (VMID %d) on host %s", v.Label(), v.ID, v.Host), n.GPU.BDF,
			"take it from that VM, or name another GPU")

		return
	}

	c.Warnings = append(c.Warnings, spec.Problem{
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
