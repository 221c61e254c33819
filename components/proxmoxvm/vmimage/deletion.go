package vmimage

import (
	"context"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
)

// CheckDeleted is a hook that runs after an image was deleted. A host deletes a file in a task, whose end the provider
// does not look at, and the image has left the state by then. A file that is still there is deleted again.
func (h Hooks) CheckDeleted(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	// RestoreImage has nodes of the plan find their image, which the failed deletion has left.
	file, err := h.wanted(hookutil.String(args.OldInputs, "fileName"))
	if err != nil || file != nil && !h.Destroying {
		return err
	}

	return h.checkDeleted(hookutil.Deleting(ctx), hookutil.String(args.OldInputs, "nodeName"),
		hookutil.String(args.OldInputs, "datastoreId"), downloaded(args.OldInputs), h.Proxmox.Files,
		func() error { return h.CheckUnused(ctx, args) })
}

func (h Hooks) checkDeleted(ctx context.Context, host, datastore, volume string,
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
