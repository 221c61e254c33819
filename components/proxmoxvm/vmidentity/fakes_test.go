package vmidentity

import (
	"context"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/proxmoxapi"
)

// fakeProxmox is a Proxmox VE with one machine.
type fakeProxmox struct {
	Proxmox

	err     error
	machine *proxmoxapi.VM
	config  proxmoxapi.VMConfig
	// others are further VMs. All have its configuration.
	others []proxmoxapi.VM
}

func (s *fakeProxmox) VMs(context.Context) ([]proxmoxapi.VM, error) {
	all := slices.Clone(s.others)
	if s.machine != nil {
		all = append(all, *s.machine)
	}

	// Only the host of a VM knows these.
	for i := range all {
		all[i].Stopped, all[i].Unreachable = false, false
	}

	return all, s.err
}

func (s *fakeProxmox) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return s.config, nil
}

func (s *fakeProxmox) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	if i := slices.IndexFunc(s.others, func(v proxmoxapi.VM) bool { return v.ID == vmid }); i >= 0 {
		return s.others[i], true, nil
	}

	if s.machine == nil || s.machine.ID != vmid {
		return proxmoxapi.VM{}, false, s.err
	}

	return *s.machine, true, nil
}

// noResources are the mocks of a program without resources.
type noResources struct{ pulumi.MockResourceMonitor }

func inputs(values map[string]any) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{NewInputs: resource.NewPropertyMapFromMap(values)}
}
