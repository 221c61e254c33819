package proxmoxvm

import (
	"context"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/proxmoxapi"
)

// fakeMappings is a Proxmox VE with resource mappings and VMs of one configuration.
type fakeMappings struct {
	Proxmox

	mappings map[string][]proxmoxapi.Mapped
	vms      []proxmoxapi.VM
	config   proxmoxapi.VMConfig
	// err is the answer to what mappings there are, unreadable to what the settings of a VM are, undeleted to a deletion.
	err, unreadable, undeleted error
	deleted                    []string
}

func (s *fakeMappings) Mappings(context.Context) (map[string][]proxmoxapi.Mapped, error) {
	return s.mappings, s.err
}

func (s *fakeMappings) DeleteMapping(_ context.Context, name string) error {
	s.deleted = append(s.deleted, name)

	return s.undeleted
}

func (s *fakeMappings) VMs(context.Context) ([]proxmoxapi.VM, error) { return s.vms, nil }

func (s *fakeMappings) Config(context.Context, proxmoxapi.VM) (proxmoxapi.VMConfig, error) {
	return s.config, s.unreadable
}

// oneVM is a Proxmox VE with one VM at most, whose drives can be emptied.
type oneVM struct {
	Proxmox

	machine *proxmoxapi.VM
	err     error
	ejected []string
}

func (s *oneVM) Find(_ context.Context, vmid int) (proxmoxapi.VM, bool, error) {
	if s.machine == nil || s.machine.ID != vmid {
		return proxmoxapi.VM{}, false, s.err
	}

	return *s.machine, true, nil
}

func (s *oneVM) Eject(_ context.Context, vm proxmoxapi.VM, drive string) error {
	s.ejected = append(s.ejected, vm.Name+" "+drive)

	return nil
}

func inputs(values map[string]any) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{NewInputs: resource.NewPropertyMapFromMap(values)}
}
