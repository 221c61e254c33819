package hosts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// CheckGPUs finds the GPU of each node, and what a resource mapping says of it.
func (c Checker) CheckGPUs(ctx context.Context) error {
	type answer struct {
		devices []proxmoxapi.PCIDevice
		err     error
	}

	answers := map[string]answer{}

	for _, n := range c.Plan.Nodes() {
		if n.GPU == nil || c.Absent[n.VMID] && c.Unavailable[n.Host] {
			continue
		}

		if _, asked := answers[n.Host]; !asked {
			devices, err := c.Proxmox.PCIDevices(ctx, n.Host)
			answers[n.Host] = answer{devices, err}
		}

		switch a := answers[n.Host]; {
		case errors.Is(a.err, proxmoxapi.ErrHostUnreachable) && !c.Absent[n.VMID]:
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: bdfPath(n), Rule: "was not checked: Proxmox VE cannot reach host " + n.Host, Value: n.GPU.BDF,
			})
		case a.err != nil && !errors.Is(a.err, proxmoxapi.ErrRefused) && !c.Absent[n.VMID]:
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: bdfPath(n), Rule: fmt.Sprintf("was not checked: %v", a.err),
				Value: n.GPU.BDF,
			})
		case errors.Is(a.err, proxmoxapi.ErrHostUnreachable):
			c.reportUnreachableHost(n.Host)
		case a.err != nil:
			return a.err
		default:
			c.checkGPU(n, a.devices, c.Absent[n.VMID])
		}
	}

	return c.checkGPUInUse(ctx)
}

func (c Checker) checkGPU(n plan.Node, devices []proxmoxapi.PCIDevice, absent bool) {
	path := bdfPath(n)

	// A device without a function is all its functions; the first stands for it.
	bdf := n.GPU.BDF
	if !strings.Contains(bdf, ".") {
		bdf += ".0"
	}

	var gpu *proxmoxapi.PCIDevice

	for _, d := range devices {
		if d.BDF == bdf {
			gpu = &d
		}
	}

	switch {
	case gpu == nil && absent:
		c.Problems.Add(path, "is not a PCI device of host "+n.Host, n.GPU.BDF,
			"run 'lspci -Dnn' on that host, and correct it")

		return
	case gpu == nil:
		c.Warnings = append(c.Warnings, spec.Problem{
			Path: path, Rule: "is not a PCI device of host " + n.Host + " any more: the VM does not start without it",
			Value:  n.GPU.BDF,
			Remedy: "run 'lspci -Dnn' on that host, and correct it",
		})

		return
	}

	c.Devices[n.Name] = *gpu

	if !absent {
		return
	}

	if gpu.IOMMUGroup < 0 {
		c.Problems.Add(path, "cannot be passed through: the IOMMU of host "+n.Host+" is off", n.GPU.BDF,
			"switch it on in the firmware and in the kernel's command line, and restart the host")

		return
	}

	for _, other := range devices {
		slot, _, _ := strings.Cut(gpu.BDF, ".")
		bridge := strings.HasPrefix(other.Class, "0x06")

		if other.IOMMUGroup == gpu.IOMMUGroup && !bridge && !strings.HasPrefix(other.BDF, slot+".") {
			c.Warnings = append(c.Warnings, spec.Problem{
				Path: path, Rule: fmt.Sprintf("shares IOMMU group %d of host %s with %s (%s), which the host loses too",
					gpu.IOMMUGroup, n.Host, other.BDF, other.Name),
				Value: n.GPU.BDF, Remedy: "put the card into another slot",
			})
		}
	}
}
