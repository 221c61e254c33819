package patches

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"talos-proxmox/components/plan"
)

// nvidiaModules are what Talos' guide to NVIDIA GPUs loads, in its order; drivers of other makers load by themselves.
var nvidiaModules = []string{"nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset"}

// addGPU adds what the GPU driver of a pool's image needs. Without a driver in the image there is nothing to load.
func addGPU(m *v1alpha1.MachineConfig, pool plan.PlannedPool) {
	if !pool.GPU {
		return
	}

	for _, extension := range pool.Image.Extensions {
		// nonfree-kmod-nvidia-lts, nvidia-open-gpu-kernel-modules-production, ...
		if !strings.Contains(extension, "kmod-nvidia") && !strings.Contains(extension, "nvidia-open-gpu-kernel-modules") {
			continue
		}

		m.MachineKernel = &v1alpha1.KernelConfig{}
		for _, name := range nvidiaModules {
			m.MachineKernel.KernelModules = append(m.MachineKernel.KernelModules, &v1alpha1.KernelModuleConfig{ModuleName: name})
		}

		m.MachineSysctls = map[string]string{"net.core.bpf_jit_harden": "1"}

		return
	}
}
