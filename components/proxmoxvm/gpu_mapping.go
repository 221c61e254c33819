package proxmoxvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/hardware/mapping"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/tokens"
	"talos-proxmox/components/wait"
)

// NewMapping makes the resource mapping of one GPU. Proxmox VE compares what it says of the device each time that the
// VM starts: another card in the same slot is not passed by mistake.
func NewMapping(ctx *pulumi.Context, name string, n plan.Node, known *proxmoxapi.PCIDevice,
	opts ...pulumi.ResourceOption,
) (pulumi.StringInput, error) {
	device := mapping.PciMapTypeArgs{Node: pulumi.String(n.Host), Path: pulumi.String(n.GPU.BDF)}

	if known != nil {
		device.Id = pulumi.String(known.ID)
		if known.SubsystemID != "" {
			device.SubsystemId = pulumi.String(known.SubsystemID)
		}

		if known.IOMMUGroup >= 0 {
			device.IommuGroup = pulumi.Int(known.IOMMUGroup)
		}
	} else {
		opts = append(opts, pulumi.IgnoreChanges([]string{"maps"}))
		device.Id = pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) string { return "" }).(pulumi.StringOutput)
	}

	m, err := mapping.NewPci(ctx, name+tokens.GPUSuffix, &mapping.PciArgs{
		Name: pulumi.String(plan.MappingName(name)), Comment: pulumi.String("GPU of " + n.Name),
		Maps: mapping.PciMapTypeArray{device},
	}, opts...)
	if err != nil {
		return nil, err
	}

	return m.Name, nil
}

// MappingHooks check what becomes of the resource mappings of GPUs.
type MappingHooks struct {
	Proxmox    Proxmox
	Identities *vmidentity.Identities
	Progress   wait.Reporter
	DryRun     bool
}

// CheckUnused is a hook that runs before a resource mapping is changed or deleted, and in previews. It keeps one that a
// VM has which is not this stack's: Proxmox VE does not refuse that, and the VM would not start without it.
func (h MappingHooks) CheckUnused(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)
	name := hookutil.String(args.OldInputs, "name")

	err := h.checkUnused(ctx, name)
	if h.DryRun {
		return proxmoxapi.IgnoreUnreachable(err)
	}

	return err
}

func (h MappingHooks) checkUnused(ctx context.Context, name string) error {
	all, err := h.Proxmox.Mappings(ctx)
	if err != nil {
		return err
	}

	onHost := func(v proxmoxapi.VM) bool {
		return slices.ContainsFunc(all[name], func(d proxmoxapi.Mapped) bool { return d.Host == v.Host })
	}

	return h.Identities.CheckOthers(ctx, onHost, func(v proxmoxapi.VM, config proxmoxapi.VMConfig, unread error) error {
		switch {
		case errors.Is(unread, proxmoxapi.ErrHostUnreachable):
			// Where a host is lost, its GPU is, and what is removed from the cluster takes its mapping along.
			h.Progress(fmt.Sprintf("it is not known whether VM %d on host %s has resource mapping %s: the host does not "+
				"answer", v.ID, v.Host, name))

			return nil
		case unread != nil:
			return fmt.Errorf("resource mapping %s is to be changed or deleted, and it is not known whether VM %d (%s) on "+
				"host %s has it: %w", name, v.ID, v.Name, v.Host, unread)
		}

		for _, device := range config.Devices {
			if device.Mapping == name {
				return fmt.Errorf("resource mapping %s is to be changed or deleted, and VM %d (%s) on host %s has it, which is "+
					"not in this stack: that VM would not start without it. Run 'qm set %d --delete %s' on that host, or give "+
					"that VM another mapping, then run 'pulumi up' again", name, v.ID,
					cmp.Or(config.Settings["name"], v.Name), v.Host, v.ID, device.Key)
			}
		}

		return nil
	})
}

// CheckDeleted is a hook that runs after a resource mapping was deleted. The provider takes any answer with status 200
// for success, a proxy's page included, and the mapping has left the state by then. One that is still there with the
// devices that the state had is deleted again.
func (h MappingHooks) CheckDeleted(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	ctx = hookutil.Deleting(ctx)
	name := hookutil.String(args.OldInputs, "name")

	remedy := fmt.Sprintf("Run 'pvesh delete /cluster/mapping/pci/%s' on a host, then run the same command again", name)

	all, err := h.Proxmox.Mappings(ctx)
	if err != nil {
		return fmt.Errorf("resource mapping %s is no longer in the state, and it is not known whether it was deleted: "+
			"%w. %s", name, err, remedy)
	}

	devices, there := all[name]
	if !there {
		return nil
	}

	// It may have been made by another one in between.
	if !slices.EqualFunc(devices, mapped(args.OldInputs), proxmoxapi.Mapped.Same) {
		return fmt.Errorf("resource mapping %s is no longer in the state, and is still on Proxmox VE, with other devices "+
			"than the state had: %v. If no VM uses it: %s", name, devices, remedy)
	}

	// A VM of others may have come to use it since the first deletion.
	if err := h.checkUnused(ctx, name); err != nil {
		return fmt.Errorf("resource mapping %s is no longer in the state, and is not deleted again: %w", name, err)
	}

	h.Progress(fmt.Sprintf("resource mapping %s was not deleted: it is deleted again", name))

	if err := h.Proxmox.DeleteMapping(ctx, name); err != nil {
		return fmt.Errorf("resource mapping %s is no longer in the state, and is still on Proxmox VE: %w. %s", name, err,
			remedy)
	}

	return nil
}

// mapped are the devices of a resource mapping, as its inputs have them.
func mapped(inputs resource.PropertyMap) []proxmoxapi.Mapped {
	var devices []proxmoxapi.Mapped

	for _, device := range hookutil.Objects(inputs, "maps") {
		devices = append(devices, proxmoxapi.Mapped{
			Host: hookutil.String(device, "node"), BDF: hookutil.String(device, "path"), ID: hookutil.String(device, "id"),
		})
	}

	return devices
}
