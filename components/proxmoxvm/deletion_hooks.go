package proxmoxvm

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/proxmoxvm/vmidentity"
	"talos-proxmox/components/wait"
)

// CheckDeleted is a hook that runs after an image was deleted. A host deletes a file in a task, whose end the provider
// does not look at, and the image has left the state by then. A file that is still there is deleted again.
func (h ImageHooks) CheckDeleted(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	// RestoreImage has nodes of the plan find their image, which the failed deletion has left.
	file, err := h.wanted(hookutil.String(args.OldInputs, "fileName"))
	if err != nil || file != nil && !h.Destroying {
		return err
	}

	return h.checkDeleted(hookutil.Deleting(ctx), hookutil.String(args.OldInputs, "nodeName"),
		hookutil.String(args.OldInputs, "datastoreId"), downloaded(args.OldInputs), h.Proxmox.Files,
		func() error { return h.CheckUnused(ctx, args) })
}

// CheckUserDataDeleted is CheckDeleted for the user data of a node, which hold keys of the cluster.
func (h ImageHooks) CheckUserDataDeleted(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	return h.checkDeleted(hookutil.Deleting(ctx), hookutil.String(args.OldInputs, "nodeName"),
		hookutil.String(args.OldInputs, "datastoreId"), userDataVolume(args), h.Proxmox.Snippets,
		func() error { return h.CheckUserDataUnused(ctx, args) })
}

func (h ImageHooks) checkDeleted(ctx context.Context, host, datastore, volume string,
	list func(ctx context.Context, host, datastore string) (map[string]int64, error), checkUnused func() error,
) error {
	remains := func() (bool, error) {
		files, err := list(ctx, host, datastore)
		_, there := files[volume]

		return there, err
	}

	var there bool

	err := h.Proxmox.AwaitDeletions(ctx, host, datastore)
	if err == nil {
		there, err = remains()
	}

	if err != nil {
		return fmt.Errorf("%s is no longer in the state, and host %s does not report whether it was deleted: %w. Run "+
			"'pvesm free %s' on that host, which deletes it if it is still there, then run the same command again",
			volume, host, err, volume)
	}

	if !there {
		return nil
	}

	// A VM of others may use a file of this name since the first deletion.
	if err := checkUnused(); err != nil {
		return fmt.Errorf("%s is no longer in the state, and is not deleted again: %w", volume, err)
	}

	h.Progress(fmt.Sprintf("host %s failed to delete %s: it is deleted again", host, volume))

	if err = h.Proxmox.DeleteFile(ctx, host, volume); err == nil {
		return nil
	}

	// The answer may be what was lost, and not the request.
	if there, unread := remains(); unread == nil && !there {
		return nil
	}

	return fmt.Errorf("%s is no longer in the state, and host %s failed to delete it: %w. Run 'pvesm free %s' on that "+
		"host, then run the same command again", volume, host, err, volume)
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
		return previewed(err)
	}

	return err
}

func (h MappingHooks) checkUnused(ctx context.Context, name string) error {
	all, err := h.Proxmox.Mappings(ctx)
	if err != nil {
		return err
	}

	thing := "resource mapping " + name

	return checkOthers(ctx, h.Proxmox, h.Identities, thing, func(v proxmoxapi.VM) bool {
		return slices.ContainsFunc(all[name], func(d proxmoxapi.Mapped) bool { return d.Host == v.Host })
	}, func(v proxmoxapi.VM, config proxmoxapi.VMConfig) error {
		for _, device := range config.Devices {
			if device.Mapping == name {
				return fmt.Errorf("%s is to be changed or deleted, and VM %d (%s) on host %s has it, which is not in this "+
					"stack: that VM would not start without it. Run 'qm set %d --delete %s' on that host, or give that VM "+
					"another mapping, then run 'pulumi up' again", thing, v.ID, cmp.Or(config.Settings["name"], v.Name), v.Host,
					v.ID, device.Key)
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
	if !slices.Equal(devices, mapped(args.OldInputs)) {
		return fmt.Errorf("resource mapping %s is no longer in the state, and is still on Proxmox VE, with other devices "+
			"than the state had: %v. If no VM uses it: %s", name, devices, remedy)
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
			Host: hookutil.String(device, "node"), BDF: hookutil.String(device, "path"),
		})
	}

	return devices
}
