package components

import (
	"context"
	"fmt"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// lookForGPUs finds the GPU of each node, and what a resource mapping says of it.
func (s *survey) lookForGPUs(ctx context.Context) error {
	devices := map[string][]proxmoxapi.PCIDevice{}

	for _, n := range s.plan.Nodes() {
		if n.GPU == nil {
			continue
		}

		if _, asked := devices[n.Host]; !asked {
			var err error
			if devices[n.Host], err = s.proxmox.PCIDevices(ctx, n.Host); err != nil {
				return err
			}
		}

		s.lookForGPU(n, devices[n.Host], s.absent[n.VMID])
	}

	return nil
}

func (s *survey) lookForGPU(n plan.Node, devices []proxmoxapi.PCIDevice, absent bool) {
	path := fmt.Sprintf("pools.%s.gpus.%d.bdf", n.Pool, n.Ordinal)

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

	if gpu == nil {
		if absent {
			s.problems.Add(path, "is no PCI device of host "+n.Host, n.GPU.BDF, "run 'lspci -Dnn' on that host, and correct it")
		}

		return
	}

	s.found.devices[n.Name] = *gpu

	if !absent {
		return
	}

	if gpu.IOMMUGroup < 0 {
		s.problems.Add(path, "cannot be passed through: the IOMMU of host "+n.Host+" is off", n.GPU.BDF,
			"switch it on in the firmware and in the kernel's command line, and restart the host")

		return
	}

	for _, other := range devices {
		slot, _, _ := strings.Cut(gpu.BDF, ".")
		bridge := strings.HasPrefix(other.Class, "0x06")

		if other.IOMMUGroup == gpu.IOMMUGroup && !bridge && !strings.HasPrefix(other.BDF, slot+".") {
			s.warnings = append(s.warnings, plan.Problem{
				Path: path, Rule: fmt.Sprintf("shares IOMMU group %d of host %s with %s (%s), which the host loses too", gpu.IOMMUGroup, n.Host, other.BDF, other.Name),
				Value: n.GPU.BDF, Remedy: "put the card into another slot",
			})
		}
	}
}
