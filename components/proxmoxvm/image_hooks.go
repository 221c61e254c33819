package proxmoxvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/hookutil"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/proxmoxapi"
)

// ImageHooks check an image before and after it is downloaded.
type ImageHooks struct {
	Proxmox Proxmox
	Plan    *plan.Plan
}

// CheckDownload is a hook that runs before a download. It asks the host what the URL holds. A server that answers with
// a page instead of an image would be believed.
func (h ImageHooks) CheckDownload(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	host, url := hookutil.String(args.NewInputs, "nodeName"), hookutil.String(args.NewInputs, "url")

	size, err := h.Proxmox.Offered(ctx, host, url)

	switch {
	case err != nil:
		return fmt.Errorf("host %s cannot get the image %s: %w%s", host, url, err, h.remedy(url))
	case size > 0 && size < SmallestImage:
		return fmt.Errorf("%s holds %d bytes: that is no image. Open it, and correct the URL, or what the factory is asked "+
			"for", url, size)
	default:
		return nil
	}
}

// PreviewDownload is CheckDownload in a preview: an image of the factory may be of a schematic that it does not know
// yet, and without Proxmox VE nothing is known, which the preview has said.
func (h ImageHooks) PreviewDownload(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	url := hookutil.String(args.NewInputs, "url")
	if url == "" || slices.ContainsFunc(h.Plan.Pools, func(p plan.PlannedPool) bool {
		return p.Image.FactoryURL != "" && strings.HasPrefix(url, p.Image.FactoryURL+"/")
	}) {
		return nil
	}

	err := h.CheckDownload(ctx, args)
	if errors.Is(err, proxmoxapi.ErrUnreachable) || errors.Is(err, proxmoxapi.ErrOffline) {
		return nil
	}

	return err
}

// remedy names the key that states a URL; empty when none does.
func (h ImageHooks) remedy(url string) string {
	for _, p := range h.Plan.Pools {
		if p.Image.URL == url {
			return "; correct " + p.Image.Path + ".url, or let the host reach it"
		}
	}

	return ""
}

// CheckImage is a hook that runs before a VM is created, and checks the image that it boots: a download may be
// incomplete.
func (h ImageHooks) CheckImage(ctx context.Context, args *pulumi.ResourceHookArgs) error {
	host, volume := hookutil.String(args.NewInputs, "nodeName"), bootVolume(args.NewInputs)
	if volume == "" {
		return nil
	}

	datastore, _, _ := strings.Cut(volume, ":")

	files, err := h.Proxmox.Files(ctx, host, datastore)
	if err != nil {
		return err
	}

	size, there := files[volume]

	switch {
	case !there:
		return fmt.Errorf("image %s is not on host %s: it was removed. Run 'pulumi up --refresh'", volume, host)
	case size < SmallestImage:
		return fmt.Errorf("image %s on host %s has %d bytes: that is no image. Delete it there ('pvesm free %s'), and run "+
			"'pulumi up --refresh'", volume, host,
			size, volume)
	default:
		return nil
	}
}

// bootVolume is the ISO file or the image of a VM; empty for a clone.
func bootVolume(inputs resource.PropertyMap) string {
	if cdrom := hookutil.Unwrap(inputs["cdrom"]); cdrom.IsObject() {
		if volume := hookutil.String(cdrom.ObjectValue(), "fileId"); strings.Contains(volume, ":") {
			return volume
		}
	}

	if all := Disks(inputs); len(all) > 0 {
		return hookutil.String(all[0], "fileId")
	}

	return ""
}
