package vmimage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/proxmoxapi"
)

// CheckUserDataUnused is a hook that runs before the user data of a node are deleted, and in previews. It keeps a file
// that a VM reads which is not this stack's: a node of the same name in another cluster has a file of the same name.
func (h Hooks) CheckUserDataUnused(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	volume := userDataVolume(args)
	host := hookutil.String(args.OldInputs, "nodeName")

	// The file is called after its node. VMs of other names are not asked for: their hosts may be down.
	node := strings.TrimSuffix(path.Base(volume), ".yaml")

	return h.deleted(h.checkUnused(hookutil.Deleting(ctx), host, volume, node, func(
		v proxmoxapi.VM, config proxmoxapi.VMConfig,
	) error {
		if !slices.Contains(slices.Collect(maps.Values(proxmoxapi.Properties(config.UserData))), volume) {
			return nil
		}

		own := fmt.Sprintf("%s-%d.yaml", strings.TrimSuffix(volume, ".yaml"), v.ID)

		return fmt.Errorf("user data %s are to be deleted, and VM %d (%s) on host %s reads them, which is not in this "+
			"stack: that VM would not start without them. Give it a copy ('cp $(pvesm path %s) $(pvesm path %s)', then "+
			"'qm set %d --cicustom %s' on that host), then run the command again", volume, v.ID,
			cmp.Or(config.Settings["name"], v.Name), v.Host, volume, own, v.ID,
			strings.ReplaceAll(config.UserData, volume, own))
	}))
}

// userDataVolume is the volume of the user data of a node, which is their ID, too: of an imported file, the inputs do
// not have its name.
func userDataVolume(args *pulumi.ResourceHookArgs) string {
	return cmp.Or(writtenUserData(args.OldInputs), string(args.ID))
}

// writtenUserData is the volume of the user data that these inputs write; empty: they do not say.
func writtenUserData(inputs resource.PropertyMap) string {
	raw := hookutil.Unwrap(inputs["sourceRaw"])
	if !raw.IsObject() {
		return ""
	}

	return hookutil.String(inputs, "datastoreId") + ":snippets/" + hookutil.String(raw.ObjectValue(), "fileName")
}

// CheckUserDataFree is a hook that runs before the user data of a node are written, which would replace a file of the
// same name. One that was not there when the run began is another stack's, whose node has not started yet: it would
// start with our keys. One that was there is what preflight has looked at.
func (h Hooks) CheckUserDataFree(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	host, datastore := hookutil.String(args.NewInputs, "nodeName"), hookutil.String(args.NewInputs, "datastoreId")

	// The provider does not wait for the deletion of the file before, which could take the new file away.
	if err := h.Proxmox.AwaitDeletions(ctx, host, datastore); err != nil {
		return err
	}

	volume := writtenUserData(args.NewInputs)
	if !h.UserDataMissing(host, volume) {
		return nil
	}

	files, err := h.Proxmox.Snippets(ctx, host, datastore)
	if err != nil {
		return fmt.Errorf("it is not known whether user data %s are on host %s already: %w", volume, host, err)
	}

	if _, there := files[volume]; there {
		return fmt.Errorf("user data %s were written to host %s since this run began: another stack creates a node of the "+
			"same name now. Nothing was replaced. Choose names that no other cluster has (pools.<pool>.names); or, if no "+
			"other stack has such a node, run 'pulumi up' again", volume, host)
	}

	return nil
}

// CheckUserDataDeleted is CheckDeleted for the user data of a node, which hold keys of the cluster.
func (h Hooks) CheckUserDataDeleted(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	return h.checkDeleted(hookutil.Deleting(ctx), hookutil.String(args.OldInputs, "nodeName"),
		hookutil.String(args.OldInputs, "datastoreId"), userDataVolume(args), h.Proxmox.Snippets,
		func() error { return h.CheckUserDataUnused(ctx, args) })
}
