package hosts

import (
	"fmt"
	"strconv"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// checkCapacity checks that a host has the processors of each VM, and warns where it would promise more memory than it
// has, or the configuration does.
func (c Checker) checkCapacity(h proxmoxapi.Host, newNodes []plan.Node) {
	if h.CPUs == 0 { // the credentials may not see it, which is said
		return
	}

	promised, more := 0, 0

	for _, v := range c.VMs {
		if v.Host == h.Name && !v.Template {
			promised += v.MemoryMiB
		}
	}

	for _, n := range newNodes {
		more += n.MemoryMiB
		c.CheckCores(n, h)
	}

	if promised+more > h.MemoryMiB {
		c.Warnings = append(c.Warnings, spec.Problem{
			Path: "proxmox.hosts", Rule: fmt.Sprintf("has %d MiB of memory, but its guests are allocated %d MiB, "+
				"and new nodes %d MiB", h.MemoryMiB, promised, more),
			Value: h.Name, Remedy: "make sure that not all of it is used at once, make nodes smaller, or place " +
				"them elsewhere",
		})
	}

	for _, stated := range c.Plan.Hosts {
		if stated.Name == h.Name && stated.Limited && stated.Capacity.MemoryMiB > h.MemoryMiB {
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: "proxmox.hosts", Rule: fmt.Sprintf("sets a capacity of %d MiB for host %s, which has %d MiB",
					stated.Capacity.MemoryMiB, h.Name, h.MemoryMiB),
				Value: h.Name, Remedy: "lower capacity.memoryMiB",
			})
		}
	}
}

// CheckCores checks that a host has the processors of a VM: Proxmox VE takes any number, and does not start the VM.
func (c Checker) CheckCores(n plan.Node, h proxmoxapi.Host) {
	if h.CPUs > 0 && n.Cores > h.CPUs {
		c.Problems.Add("pools."+n.Pool+".cores", fmt.Sprintf("must be at most %d, the processors of host %s: a VM with "+
			"more does not start", h.CPUs, h.Name),
			strconv.Itoa(n.Cores), "lower it, or place the node elsewhere")
	}
}
