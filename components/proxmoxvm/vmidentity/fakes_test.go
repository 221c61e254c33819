package vmidentity

import (
	"context"

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
}

func (s *fakeProxmox) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return s.config, nil
}

func (s *fakeProxmox) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
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
